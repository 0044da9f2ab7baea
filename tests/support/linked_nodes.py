"""Overlay nodes that are linked in memory (see `linked_cores`)."""

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay import (
    AnnounceGap,
    LeaveOverlay,
    NodeSettings,
    OverlayMessage,
    OverlayNode,
    Packet,
    SendMessage,
    decode_message,
    encode_message,
    site_key,
)
from support.linked_cores import LinkedCores, LinkedSite

EVERYTHING = EncodedPredicate(NOTHING.encoding, NOTHING.bits, NOTHING.hashes, (), (bytes(8),))
PARIS, LYON, BONN, OSLO = (site_key(name, bytes(8)) for name in ("paris", "lyon", "bonn", "oslo"))


def predicate(bit: int) -> EncodedPredicate:
    """One of 64 predicates that differ."""
    vector = (1 << bit).to_bytes(8, "little")
    return EncodedPredicate(NOTHING.encoding, NOTHING.bits, NOTHING.hashes, (), (vector,))


class Site(LinkedSite[OverlayNode]):
    def sent(self, *kinds: type[OverlayMessage]) -> list[OverlayMessage]:
        return [each.message for each in self.of(SendMessage) if isinstance(each.message, kinds)]


class LinkedNodes(LinkedCores[Site]):
    def __init__(self, settings: NodeSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or NodeSettings()

    def add(self, *keys: str, boot: int = 1, settings: NodeSettings | None = None) -> None:
        for key in keys:
            self.sites[key] = Site(OverlayNode(key, boot, 0, {}, settings or self.settings))

    def restart(self, key: str, boot: int) -> None:
        """Begin a new run with the log and the mailboxes of the old one; everything else is forgotten."""
        old = self.sites[key]
        for link in list(old.links):
            self.unlink(link)
        node = OverlayNode(key, boot, len(old.log), old.positions(), self.settings)
        for site, mailbox in old.mailboxes.items():
            acknowledged = old.node.outgoing.acknowledged_position(site)
            node.restore(site, mailbox.predicate, mailbox.since, acknowledged)
            mailbox.read = sum(offset < acknowledged for offset in mailbox.offsets)
        self.sites[key] = Site(node, old.log, old.mailboxes)

    def renew(self, key: str, new_key: str, boot: int) -> None:
        """Begin a new run under a new key, as a site does that was asked to leave."""
        (leave,) = self[key].of(LeaveOverlay)
        self[key].mailboxes.clear()
        self.restart(key, boot)
        old = self.sites.pop(key)
        positions = old.node.incoming.positions()
        node = OverlayNode(new_key, boot, len(old.log), positions, self.settings)
        node.restore_meetings({}, {}, leave.given_anew)
        self.sites[new_key] = Site(node, old.log)

    def receive(self, key: str, link: int, message: OverlayMessage) -> None:
        self.do(key, self[key].node.received(link, message, self.now))

    def arrive(self, key: str, link: int, body: bytes) -> None:
        self.receive(key, link, decode_message(body))

    def encode(self, message: OverlayMessage) -> bytes:
        return encode_message(message)

    def carry_out(self, key: str, instruction: object) -> None:
        if isinstance(instruction, LeaveOverlay):
            for link in list(self[key].links):
                self.unlink(link)
        else:
            super().carry_out(key, instruction)


def is_packet(message: OverlayMessage) -> bool:
    return isinstance(message, Packet)


def gaps(site: Site) -> list[AnnounceGap]:
    return site.gaps
