from random import Random

import pytest

from culver.config import OverlaySettings
from culver.overlay import decode_gossip, site_key
from culver.site.wide_area.site_membership import SiteMembership, public_address

PARIS, LYON = site_key("paris", bytes(8)), site_key("lyon", bytes(8))


class Shell:
    """A membership, what it has sent, and what it has refused."""

    def __init__(self, key: str) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.refused: list[tuple[str, str]] = []
        self.membership = SiteMembership(
            key,
            1_000_000,
            OverlaySettings(most_sites=8),
            (),
            {},
            lambda site, body: self.sent.append((site, body)),
            lambda source, reason: self.refused.append((source, reason)),
            Random(1),
        )


def test_gossip_that_cannot_be_read_is_refused_and_changes_nothing() -> None:
    shell = Shell(PARIS)
    for body in (b"", b"\xff", b"\x93\x01\x02\x03" * 1000):
        shell.membership.received(LYON, body, 0.0)
    assert shell.refused == [(LYON, "gossip that cannot be read")] * 3
    assert shell.membership.member(LYON) is None
    assert not shell.sent


def test_two_sites_that_are_linked_know_each_other() -> None:
    shells = {PARIS: Shell(PARIS), LYON: Shell(LYON)}
    shells[LYON].membership.linked([PARIS], 0.0)
    while any(shell.sent for shell in shells.values()):
        for key, shell in shells.items():
            sent, shell.sent = shell.sent, []
            for site, body in sent:
                assert decode_gossip(body)
                shells[site].membership.received(key, body, 0.1)
    for shell, other in ((shells[PARIS], LYON), (shells[LYON], PARIS)):
        record = shell.membership.member(other)
        assert record is not None
        assert record.is_living
        assert not shell.refused


@pytest.mark.parametrize(
    ("listen", "address", "port", "expected"),
    [
        ("127.0.0.1:0", "", 7401, "127.0.0.1:7401"),
        ("0.0.0.0:7401", "", 7401, ""),
        (":7401", "", 7401, ""),
        ("[::]:7401", "", 7401, ""),
        ("0.0.0.0:7401", "paris.example:17401", 7401, "paris.example:17401"),
        ("", "", 0, ""),
    ],
)
def test_others_hear_of_an_address_that_they_can_dial(
    listen: str, address: str, port: int, expected: str
) -> None:
    assert public_address(OverlaySettings(listen=listen, address=address), port) == expected
