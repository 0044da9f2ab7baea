import pytest

from culver.registry.decimal_order import Span, numbers_by_text


@pytest.mark.parametrize(
    "spans",
    [
        [],
        [(0, 1)],
        [(0, 1234)],
        [(7, 10), (95, 130), (1000, 1001)],
        [(10**6 - 2, 10**6 + 3)],
        [(5, 6), (50, 60)],
    ],
)
@pytest.mark.parametrize("after", ["", "0", "1", "10", "11x", "109.5", "2", "5", "999998", "9z"])
def test_numbers_come_in_the_order_of_their_texts(spans: list[Span], after: str) -> None:
    expected = sorted(
        (str(number), place)
        for place, span in enumerate(spans)
        for number in range(*span)
        if str(number) > after
    )
    assert [(str(number), place) for number, place in numbers_by_text(spans, after)] == expected
