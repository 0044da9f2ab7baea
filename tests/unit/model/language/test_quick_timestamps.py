"""The quick way to read a timestamp gives what the careful one gives, or nothing."""

import pytest
from hypothesis import given, settings, strategies as st

from culver.model.timestamps import _carefully, _quickly

ORDINARY = (
    "2019-01-02T00:00:00Z",
    "2024-02-29T12:34:56Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "1969-12-31T23:59:59.5Z",
    "2026-01-05T09:30:00.250Z",
    "2026-01-05T09:30:00.123456Z",
    "2026-01-05T09:30:00.1234569Z",
)
UNUSUAL = (
    "2019-W01-2T00:00:00Z",  # the second day of a week
    "20190102T000000.000Z",
    "2019-01-02T24:00:00Z",
    "2019-01-02T23:59:60Z",
    "2019-01-02t00:00:00Z",
    "2019-01-02T00:00:00z",
    "2019-01-02 00:00:00Z",
    "2019-01-02T00:00:00,5Z",
    "2019-01-02T00:00:00.5+01Z",
    "2019-01-02T00:00:00.Z",
    "2019-01-02T00:00:00.²Z",
    "2019-01-02T00:00:00.٣Z",
    "2019-01-02T00:00:00.123456²Z",
    "２019-01-02T00:00:00Z",
    "2019-02-29T00:00:00Z",
    "2019-00-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "+019-01-02T00:00:00Z",
    "2019-01-02T00:00:0",
    "2019-01-02T00:00:00",
    "2019-01-02T00:00:00+01:00",
    "2019-01-02T00:00:00+01:60",
    "2019-01-02T00:00:00+01:00:30",
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A date and a time, right or nearly so, in any notation that resembles RFC 3339; then perhaps a few characters
    put in, left out or replaced."""
    number = st.integers(0, 99).map("{:02}".format)
    date = draw(st.one_of(st.dates().map(str), st.tuples(st.just("2020"), number, number).map("-".join)))
    time = draw(st.one_of(st.times().map(str), st.tuples(number, number, number).map(":".join)))
    offset = draw(
        st.sampled_from(("Z", "Z", "Z", "", "z", "+01:00", "-00:00", "+0100", "+24:00", "ZZ", "+01Z"))
    )
    text = date + draw(st.sampled_from("TTTt ")) + time + offset
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        put_in = draw(st.text("0123456789-:.,TtZzW+ ²٣２\ud800\0", max_size=2))
        text = text[:at] + put_in + text[at + draw(st.integers(0, 2)) :]
    return text


def carefully_or_nothing(text: str) -> int | None:
    try:
        return _carefully(text)
    except ValueError:
        return None


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_timestamp_is_read_the_quick_way(text: str) -> None:
    assert _quickly(text) == _carefully(text)


@pytest.mark.parametrize("text", UNUSUAL)
def test_anything_else_is_left_to_the_careful_way(text: str) -> None:
    assert _quickly(text) is None


@pytest.mark.slow(seconds=10)
@settings(max_examples=2_000, deadline=None)
@given(texts() | st.text(max_size=40))
def test_quick_and_careful_reading_agree(text: str) -> None:
    assert _quickly(text) in (None, carefully_or_nothing(text))
