from culver.client.receiving.message_buffer import Buffer
from culver.client.receiving.received_messages import Message
from culver.messages import DeliveredEvent, Gap


async def _ignore(offset: int) -> None:
    return


def _make(delivery: DeliveredEvent) -> Message:
    return Message(delivery.event, delivery.offset, "s", _ignore)


def _buffer(*, durable: bool, count: int = 4, size: int = 1_000_000) -> Buffer:
    return Buffer(_make, durable=durable, max_count=count, max_bytes=size)


def _offer(buffer: Buffer, *offsets: int, size: int = 0) -> bool:
    return buffer.offer("s", [DeliveredEvent(f"s:{offset}", offset, {}) for offset in offsets], size)


def _drain(buffer: Buffer, limit: int = 1000) -> list[int | tuple[int, int, int | None]]:
    taken: list[int | tuple[int, int, int | None]] = []
    while len(taken) < limit and (item := buffer.take()) is not None:
        taken.append((item.start, item.end, item.dropped) if isinstance(item, Gap) else item.offset)
    return taken


def test_messages_come_out_in_the_order_they_came_in() -> None:
    buffer = _buffer(durable=False)
    _offer(buffer, 1, 5)
    _offer(buffer, 9)
    assert _drain(buffer) == [1, 5, 9]
    assert buffer.take() is None


def test_repetitions_are_ignored_even_after_they_were_taken() -> None:
    buffer = _buffer(durable=True)
    _offer(buffer, 1, 2)
    assert _drain(buffer) == [1, 2]
    _offer(buffer, 1, 2, 3)
    assert _drain(buffer) == [3]


def test_a_full_durable_buffer_takes_nothing_more_until_it_is_resumed() -> None:
    buffer = _buffer(durable=True, count=2)
    assert not _offer(buffer, 1, 2, 3)
    assert _drain(buffer, 1) == [1]
    # There is room again, but 3 was refused: taking 4 would leave a hole.
    assert not _offer(buffer, 4)
    assert buffer.last_offset == 2
    assert _drain(buffer) == [2]
    buffer.resume()
    assert _offer(buffer, 3)
    assert _drain(buffer) == [3]


def test_a_durable_buffer_reports_that_it_is_full_before_it_refuses_anything() -> None:
    buffer = _buffer(durable=True, count=2)
    assert _offer(buffer, 1)
    assert not _offer(buffer, 2)
    assert _drain(buffer) == [1, 2]


def test_a_full_live_buffer_puts_one_gap_in_place_of_what_it_drops() -> None:
    buffer = _buffer(durable=False, count=2)
    assert _offer(buffer, 1, 2, 3, 7)
    _offer(buffer, 8)
    assert _drain(buffer) == [1, 2, (3, 9, 3)]


def test_a_live_buffer_goes_on_dropping_until_half_of_it_is_free() -> None:
    buffer = _buffer(durable=False, count=4)
    _offer(buffer, 1, 2, 3, 4, 5)  # four messages and a gap
    assert _drain(buffer, 2) == [1, 2]
    _offer(buffer, 6)
    assert _drain(buffer, 1) == [3]
    _offer(buffer, 7)
    assert _drain(buffer) == [4, (5, 7, 2), 7]


def test_a_gap_that_was_taken_does_not_grow_any_more() -> None:
    buffer = _buffer(durable=False, count=1)
    _offer(buffer, 1, 2)
    assert _drain(buffer) == [1, (2, 3, 1)]
    _offer(buffer, 3, 4)
    assert _drain(buffer) == [3, (4, 5, 1)]


def test_bytes_fill_a_buffer_as_well_as_messages() -> None:
    buffer = _buffer(durable=True, count=100, size=1000)
    assert _offer(buffer, 1, 2, size=998)
    assert not _offer(buffer, 3, size=10)
    assert not buffer.low
    buffer.take()
    buffer.take()
    assert buffer.low


def test_announced_gaps_are_kept_even_when_full_and_stay_bounded() -> None:
    buffer = _buffer(durable=False, count=1)
    _offer(buffer, 1)
    for start in range(2, 1000):
        buffer.announce(Gap("s", start, start + 1, 1, "overflow"))
    assert _drain(buffer) == [1, (2, 1000, 998)]


def test_an_unknown_number_of_drops_stays_unknown_when_gaps_are_joined() -> None:
    buffer = _buffer(durable=False, count=1)
    _offer(buffer, 1, 2)
    buffer.announce(Gap("s", 3, 9, None, "disconnected"))
    assert _drain(buffer) == [1, (2, 9, None)]
