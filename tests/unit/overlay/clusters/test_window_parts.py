from random import Random

from hypothesis import given, strategies as st

from culver.overlay.clusters.window_parts import MemberShare, WindowAssembly, divide_window
from culver.overlay.core.overlay_messages import StreamPart
from support.linked_nodes import BONN, LYON

PAYLOADS = {12: b"a", 16: b"b", 17: b"c"}


def test_an_event_for_many_is_in_one_packet() -> None:
    shares = {LYON: MemberShare(10, 17, 3, [12, 16]), BONN: MemberShare(11, 18, 4, [12, 17])}
    packets = divide_window(7, shares, PAYLOADS)
    assert [(set(each.streams), each.offsets, each.payloads) for each in packets] == [
        ({BONN, LYON}, (12,), (b"a",)),
        ({LYON}, (16,), (b"b",)),
        ({BONN}, (17,), (b"c",)),
    ]
    assert packets[0].streams[LYON] == packets[1].streams[LYON] == StreamPart(10, 17, 2, 3)
    assert packets[0].streams[BONN] == StreamPart(11, 18, 2, 4)
    assert {each.window for each in packets} == {7}


def test_large_events_are_divided_among_packets() -> None:
    payloads = {offset: bytes(50_000) for offset in range(4)}
    packets = divide_window(1, {LYON: MemberShare(0, 4, 1, range(4))}, payloads)
    assert [each.offsets for each in packets] == [(0,), (1,), (2,), (3,)]
    assert packets[0].streams[LYON].parts == 4


@given(
    st.dictionaries(st.sampled_from([LYON, BONN]), st.sets(st.integers(0, 30), min_size=1), min_size=1),
    st.randoms(use_true_random=False),
)
def test_every_destination_gets_its_events_in_whatever_order_packets_come(
    wanted: dict[str, set[int]], random: Random
) -> None:
    payloads = {offset: b"%d" % offset * 9000 for offset in range(31)}
    shares = {site: MemberShare(0, max(each) + 1, 1, sorted(each)) for site, each in wanted.items()}
    packets = divide_window(1, shares, payloads)
    for site, offsets in wanted.items():
        own = [each for each in packets if site in each.streams]
        own += random.sample(own, random.randint(0, len(own)))  # some come twice
        random.shuffle(own)
        assembly, complete = WindowAssembly(), []
        for each in own:
            events = assembly.take(1, each.streams[site], each.offsets, each.payloads)
            if events is not None:
                complete.append(events)
                break
        assert complete == [[(offset, payloads[offset]) for offset in sorted(offsets)]]


def test_of_too_many_unfinished_windows_the_oldest_is_dropped() -> None:
    assembly, part = WindowAssembly(), StreamPart(0, 9, 2)
    for window in range(5):
        assert assembly.take(window, part, (1,), (b"a",)) is None
    assert assembly.take(0, part, (2,), (b"b",)) is None
    assert assembly.take(4, part, (2,), (b"b",)) == [(1, b"a"), (2, b"b")]
