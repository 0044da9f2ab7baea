"""A server answers to its own names only."""

import pytest

from culver.errors import InvalidConfiguration, InvalidRequest
from culver.host_names import HostNames, is_loopback, split_list


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:8080", "localhost.", "culver.localhost:80", "127.0.0.1", "127.8.9.10:8080",
        "[::1]:8080", "[::ffff:127.0.0.1]", "10.0.0.5:8080", "bound.example", "culver.example:443", "[2001:DB8::1]",
        "192.0.2.7",
    ],
)  # fmt: skip
def test_its_own_names_are_loopback_the_bound_address_that_of_the_connection_and_allowed_ones(
    host: str,
) -> None:
    names = HostNames("bound.example", ["culver.example", "2001:db8::1", "192.0.2.7"], setting="allowed")
    names.check([host], "10.0.0.5")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.6",
        "evil@localhost", "localhost/evil", "localhost evil", "", ":8080", "[::1", "::1", "[::2]", "2130706433",
        "0x7f.1", "localhost:x", "[]", "localhost:123456",
    ],
)  # fmt: skip
def test_every_other_name_is_refused(host: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"does not answer to the name .*; .* add it to allowed"
    ) as refused:
        HostNames("127.0.0.1", setting="allowed").check([host], "10.0.0.5")
    assert (refused.value.field, refused.value.details) == ("host", {"status": 403})


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"], ["localhost", "evil.example"]])
def test_a_request_has_one_host(hosts: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="Host header") as refused:
        HostNames("127.0.0.1", ["*"], setting="allowed").check(hosts, "127.0.0.1")
    assert "status" not in refused.value.details


def test_a_star_allows_every_name() -> None:
    HostNames("127.0.0.1", ["*"], setting="allowed").check(["evil.example"], None)


@pytest.mark.parametrize("name", ["https://culver.example", "culver.example:80", "culver example", "a/b", ""])
def test_what_is_no_name_is_refused_with_its_setting(name: str) -> None:
    with pytest.raises(InvalidConfiguration, match="without a scheme or a port") as refused:
        HostNames("127.0.0.1", [name], setting="gateway.allowed_hosts")
    assert refused.value.field == "gateway.allowed_hosts"


def test_a_list_has_spaces_or_commas_between_its_entries() -> None:
    assert split_list(" a.example, b.example\tc.example,,") == ["a.example", "b.example", "c.example"]
    assert split_list(" , ") == []


def test_only_loopback_keeps_to_this_machine() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "192.0.2.1", "culver.example"]))
