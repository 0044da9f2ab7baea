"""Greetings are read strictly, and a certificate is held against the name."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from culver.overlay.links.hello import Hello, certificate_names, check_peer, encode_hello, read_hello
from culver.overlay.links.refusals import LinkRefusal

PARIS, ROME = "paris~0123456789abcdef", "rome~0123456789abcdef"
OTHER_ROME = "rome~fedcba9876543210"
FIELDS: list[Any] = ["culver-overlay", 1, PARIS, 3, "fast", 2, 1 << 20]


def test_a_hello_is_read_as_it_was_written() -> None:
    hello = read_hello(encode_hello(PARIS, 3, "fast", 2, 1 << 20))
    assert isinstance(hello, Hello)
    assert (hello.key, hello.boot, hello.label, hello.cost) == (PARIS, 3, "fast", 2)


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (0, "other", "garbage"), (1, 2, "wrong version"), (2, "paris", "garbage"), (2, PARIS + "\n", "garbage"),
        (3, -1, "garbage"), (3, 1 << 63, "garbage"), (3, "3", "garbage"), (4, "a b", "garbage"),
        (4, "x" * 65, "garbage"), (5, 0, "garbage"), (5, 1_000_001, "garbage"), (6, 100, "garbage"),
    ],
)  # fmt: skip
def test_impossible_fields_are_refused(place: int, value: Any, code: str) -> None:
    fields = [*FIELDS[:place], value, *FIELDS[place + 1 :]]
    refusal = read_hello(msgspec.msgpack.encode(fields))
    assert isinstance(refusal, LinkRefusal)
    assert refusal.code == code


def test_a_hello_of_another_version_may_have_another_form() -> None:
    refusal = read_hello(msgspec.msgpack.encode(["culver-overlay", 2, {"new": True}]))
    assert isinstance(refusal, LinkRefusal)
    assert refusal.code == "wrong version"


@given(st.binary())
@example(b"\x91" * 4_096)
@example(b"\x92\xa1\xff\x01")
def test_garbage_is_refused(content: bytes) -> None:
    assert isinstance(read_hello(content), LinkRefusal)


@pytest.mark.parametrize(
    ("key", "allowed", "names", "code"),
    [
        (PARIS, (), None, None),
        (PARIS, ("paris",), None, None),
        (PARIS, ("rome", "paris"), {"paris"}, None),
        (ROME, (), None, "own key"),
        (OTHER_ROME, ("paris",), None, "name taken"),
        (OTHER_ROME, (), {"oslo"}, "certificate"),
        (PARIS, ("oslo",), None, "not allowed"),
        (PARIS, ("oslo",), {"paris"}, "not allowed"),
        (PARIS, (), {"oslo", "*"}, "certificate"),
        (PARIS, (), set(), "certificate"),
        (PARIS, ("paris",), {"Paris"}, "certificate"),
    ],
)
def test_a_peer_must_be_who_it_says_and_allowed(
    key: str, allowed: tuple[str, ...], names: set[str] | None, code: str | None
) -> None:
    hello = read_hello(encode_hello(key, 1, "", 1, 1 << 20))
    assert isinstance(hello, Hello)
    objection = check_peer(hello, ROME, allowed, names)
    assert (objection.code if objection else None) == code


def test_a_peer_must_route_as_this_site_does() -> None:
    without = msgspec.msgpack.encode(("culver-overlay", 1, PARIS, 1, "", 1, 1 << 20))
    for content, own, code in (
        (encode_hello(PARIS, 1, "", 1, 1 << 20, "clusters 3"), "clusters 3", None),
        (encode_hello(PARIS, 1, "", 1, 1 << 20, "clusters 3"), "clusters", "other routing"),
        (without, "b-drp", None),
        (without, "clusters", "other routing"),
    ):
        hello = read_hello(content)
        assert isinstance(hello, Hello)
        objection = check_peer(hello, ROME, (), None, own)
        assert (objection.code if objection else None) == code
    assert objection is not None
    assert "paris routes by b-drp and rome by clusters" in objection.words


def test_common_name_and_dns_names_of_a_certificate_count() -> None:
    described = {
        "subject": ((("countryName", "FR"),), (("commonName", "paris"),)),
        "subjectAltName": (("DNS", "paris-2"), ("IP Address", "127.0.0.1"), ("URI", "oslo")),
    }
    assert certificate_names(described) == {"paris", "paris-2"}
    assert certificate_names({}) == frozenset()
