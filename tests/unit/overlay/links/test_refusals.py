"""Reasons travel safely, and reports of them are bounded whatever a peer does."""

from hypothesis import example, given, strategies as st

from culver.overlay.links.refusals import (
    LinkRefusal,
    RefusalReports,
    decode_refusal,
    encode_refusal,
    printable,
)


def test_the_same_reason_of_a_host_is_reported_once_a_minute() -> None:
    reports = RefusalReports()
    assert reports.admit("10.0.0.1", "garbage", 0.0)
    assert not reports.admit("10.0.0.1", "garbage", 59.0)
    assert reports.admit("10.0.0.1", "late", 59.0)
    assert reports.admit("10.0.0.2", "garbage", 59.0)
    assert reports.admit("10.0.0.1", "garbage", 60.0)


def test_many_hosts_together_cannot_fill_the_log() -> None:
    reports = RefusalReports(most_hosts_and_codes=10)
    assert sum(reports.admit(f"10.0.0.{host}", "garbage", 1.0) for host in range(100)) == 10
    assert reports.admit("10.0.0.99", "garbage", 61.0)


@given(st.text(max_size=20), st.text(max_size=400))
def test_whatever_a_peer_says_fits_on_a_line(code: str, words: str) -> None:
    assert printable(words).isprintable()
    refusal = decode_refusal(encode_refusal(LinkRefusal(code, words)))
    assert refusal.words.isprintable()
    assert len(refusal.words) < 240
    assert refusal.code in ("refused by the peer", "duplicate", "replaced", "stopped")


@given(st.binary())
@example(b"\x92\xa1x\xa1x" + b"\x91" * 4_096)
@example(b"\x93\xa1x\xa1x" + b"\x91" * 4_096)
@example(b"\x92\xa1\xff\xa1x")
def test_a_garbled_refusal_is_one_too(content: bytes) -> None:
    assert decode_refusal(content).words
