"""Urgent frames go first, order is kept, and bounds hold."""

from hypothesis import given, strategies as st

from culver.overlay.links.output_queue import OutputQueue

operations = st.lists(
    st.one_of(
        st.tuples(st.booleans(), st.binary(min_size=1, max_size=40)),
        st.integers(1, 100),
    ),
    max_size=60,
)


@given(operations)
def test_the_queue_equals_two_lists(operations: list[tuple[bool, bytes] | int]) -> None:
    queue = OutputQueue(most_data_bytes=100, most_urgent_bytes=200)
    waiting: dict[bool, list[bytes]] = {True: [], False: []}
    for operation in operations:
        if isinstance(operation, int):
            taken = queue.take(operation)
            expected = waiting[True] + waiting[False]
            assert taken == expected[: len(taken)]
            assert len(taken) <= 1 or sum(map(len, taken)) <= operation
            assert taken or not expected
            urgent = min(len(taken), len(waiting[True]))
            del waiting[True][:urgent], waiting[False][: len(taken) - urgent]
        else:
            urgent_frame, frame = operation
            fits = sum(map(len, waiting[urgent_frame])) + len(frame) <= (200 if urgent_frame else 100)
            assert queue.add(frame, urgent=urgent_frame) == (fits or not waiting[urgent_frame])
            if fits or not waiting[urgent_frame]:
                waiting[urgent_frame].append(frame)
        assert queue.queued_bytes == sum(map(len, waiting[True] + waiting[False]))


def test_an_empty_queue_takes_a_frame_beyond_its_bound() -> None:
    queue = OutputQueue(10, 10)
    assert queue.add(bytes(11), urgent=False)
    assert not queue.add(b"x", urgent=False)
    queue.clear()
    assert (queue.queued_bytes, queue.take(100)) == (0, [])
