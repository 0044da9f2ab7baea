"""Text in form C, and timestamps as text."""

import random
import time

import pytest

from culver.model.text import MOST_COMBINING_MARKS, normalise_text
from culver.model.timestamps import format_timestamp, parse_timestamp
from culver.model.values import Timestamp


def test_text_is_brought_to_form_c() -> None:
    assert normalise_text("e\u0301") == "\u00e9"
    assert normalise_text("plain") == "plain"
    assert normalise_text("\u212b") == "\u00c5"
    assert normalise_text("🙂") == "🙂"


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "é\ud83d"])
def test_lone_surrogate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        normalise_text(text)


def test_absurd_run_of_combining_marks_is_refused_quickly() -> None:
    allowed = "a" + "\u0301" * MOST_COMBINING_MARKS
    assert normalise_text(allowed + allowed).startswith("\u00e1")
    started = time.process_time()
    with pytest.raises(ValueError, match="combining marks"):
        normalise_text("a" + "\u0301\u0323" * 60_000)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T00:00:00.0000019Z", 1),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000_000),
        ("2024-02-29T12:34:56.789012+05:30", 1_709_190_296_789_012),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
    ],
)
def test_timestamp_is_read_to_the_microsecond(text: str, microseconds: int) -> None:
    assert parse_timestamp(text) == Timestamp(microseconds)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("2026-01-01T00:00:00", "without an offset"),
        ("2026-01-01", "RFC 3339"),
        ("2026-01-01T00:00Z", "RFC 3339"),
        ("2026-1-1T00:00:00Z", "RFC 3339"),
        ("2026-01-01T00:00:00.Z", "RFC 3339"),
        ("2026-01-01T00:00:00+0100", "RFC 3339"),
        ("2026-01-01T00:00:00Z ", "RFC 3339"),
        ("２026-01-01T00:00:00Z", "RFC 3339"),
        ("2026-01-01T00:00:00.²Z", "RFC 3339"),
        ("2026-01-01T00:00:00.٣Z", "RFC 3339"),
        ("2026-01-01T00:00:00,5Z", "RFC 3339"),
        ("2026-01-01T00:00:00+01", "RFC 3339"),
        ("2026-01-01T00:00:00.5+01Z", "RFC 3339"),
        ("2026-01-01T00:00:00+01:00:30", "RFC 3339"),
        ("2026-W01-2T00:00:00Z", "RFC 3339"),
        ("20260101T000000.000Z", "RFC 3339"),
        ("+026-01-01T00:00:00Z", "RFC 3339"),
        ("2026-13-01T00:00:00Z", "month"),
        ("2026-02-29T00:00:00Z", "day"),
        ("2026-01-01T24:00:00Z", "hour"),
        ("2026-01-01T23:59:60Z", "leap seconds"),
        ("2026-01-01T00:00:00+24:00", "offset"),
        ("2026-01-01T00:00:00+01:60", "offset"),
        ("0000-01-01T00:00:00Z", "year"),
        ("0001-01-01T00:00:00+00:01", "years 0001 to 9999"),
        ("9999-12-31T23:59:59-00:01", "years 0001 to 9999"),
        ("", "RFC 3339"),
    ],
)
def test_what_names_no_moment_is_refused(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        parse_timestamp(text)


def test_formatted_timestamp_reads_back_the_same() -> None:
    assert format_timestamp(Timestamp(0)) == "1970-01-01T00:00:00Z"
    assert format_timestamp(Timestamp(250_000)) == "1970-01-01T00:00:00.250000Z"
    assert format_timestamp(Timestamp(-62_135_596_800_000_000)) == "0001-01-01T00:00:00Z"
    rng = random.Random(22)
    for _ in range(500):
        timestamp = Timestamp(rng.randrange(-62_135_596_800_000_000, 253_402_300_800_000_000))
        assert parse_timestamp(format_timestamp(timestamp)) == timestamp
