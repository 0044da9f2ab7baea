"""Whole numbers in the order of their decimal texts: 0, 1, 10, 100, 101, ..., 11, ..., 2, 20, ...

The texts form a tree in which a text's children are longer by one digit; walking it in order, and only where there is
something to find, gives the first numbers without sorting all of them.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

Span = tuple[int, int]  # from the first up to, and without, the second


def numbers_by_text(spans: Sequence[Span], after: str = "") -> Iterator[tuple[int, int]]:
    """(number, place of its span) of all numbers in the spans (ascending, apart from one another) whose text comes
    behind `after`, in the order of their texts."""
    starts = [start for start, _ in spans]
    largest = spans[-1][1] if spans else 0

    def span_of(number: int) -> int | None:
        place = bisect_right(starts, number) - 1
        return place if place >= 0 and number < spans[place][1] else None

    def holds(low: int, high: int) -> bool:
        """Whether some span has a number in [low, high)."""
        place = bisect_right(starts, low) - 1
        if place >= 0 and low < spans[place][1]:
            return True
        return place + 1 < len(starts) and starts[place + 1] < high

    def is_worth_visiting(number: int) -> bool:
        text = str(number)
        if text <= after and not after.startswith(text):
            return False  # and so are all longer ones
        low, high = number, number + 1
        while low < largest:
            if holds(low, high):
                return True
            low, high = low * 10, high * 10
            if low == 0:
                return False  # nothing but 0 itself begins with 0
        return False

    def visit(number: int) -> Iterator[tuple[int, int]]:
        if not is_worth_visiting(number):
            return
        place = span_of(number)
        if place is not None and str(number) > after:
            yield number, place
        if number and number * 10 < largest:
            for digit in range(10):
                yield from visit(number * 10 + digit)

    for first in range(10):
        yield from visit(first)
