"""Numbered publications: what a client says about them, and what it is told."""

import re
from collections.abc import Sequence

from culver.errors import InvalidRequest
from culver.messages import Receipt
from culver.model import PUBLISHER_ID, Event
from culver.roles import MOST_SEQUENCE, NumberedPart, PublicationNumbers


def check_number(publisher: str | None, sequence: int | None) -> None:
    """Raises InvalidRequest for what is no number. A publication without publisher and sequence is plain."""
    if publisher is None and sequence is None:
        return
    if publisher is None or sequence is None:
        missing = "publisher" if publisher is None else "sequence"
        raise InvalidRequest(
            f"{missing} is missing: a numbered publication has a publisher and a sequence", field=missing
        )
    if not re.fullmatch(PUBLISHER_ID, publisher):
        raise InvalidRequest(
            "a publisher's id is 1 to 200 letters, digits and . _ ~ : / -, and begins with a letter or digit",
            field="publisher",
        )
    if sequence > MOST_SEQUENCE:
        raise _beyond_the_end()


def publication_numbers(publisher: str | None, sequence: int | None, count: int) -> PublicationNumbers | None:
    """The numbers of `count` events, the first of which has that sequence; None where they are plain. Raises
    InvalidRequest."""
    check_number(publisher, sequence)
    if publisher is None or sequence is None:
        return None
    if sequence + count - 1 > MOST_SEQUENCE:
        raise _beyond_the_end()
    return PublicationNumbers(publisher, range(sequence, sequence + count))


def without_refused(numbers: PublicationNumbers, refused: Sequence[int]) -> PublicationNumbers:
    """The numbers that are left where some events, by their place, are refused."""
    gone = set(refused)
    kept = [sequence for place, sequence in enumerate(numbers.sequences) if place not in gone]
    return PublicationNumbers(numbers.publisher, kept)


def fresh_events(events: Sequence[Event], parts: Sequence[NumberedPart]) -> list[Event]:
    """The events that were not stored before."""
    fresh: list[Event] = []
    at = 0
    for first, following, is_repeat in parts:
        if not is_repeat:
            fresh += events[at : at + following - first]
        at += following - first
    return fresh


def repeated_events(parts: Sequence[NumberedPart]) -> int:
    return sum(following - first for first, following, is_repeat in parts if is_repeat)


def ranges_of(parts: Sequence[NumberedPart]) -> list[Receipt]:
    """The offsets of the events, in as few ranges as there are."""
    ranges: list[Receipt] = []
    for first, following, _ in parts:
        if ranges and ranges[-1].next_offset == first:
            first = ranges.pop().first_offset
        ranges.append(Receipt(first, following))
    return ranges


def _beyond_the_end() -> InvalidRequest:
    return InvalidRequest(f"sequences end at {MOST_SEQUENCE}", field="sequence")
