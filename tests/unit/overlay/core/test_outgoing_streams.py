from culver.overlay.core.outgoing_streams import MailboxGap, OutgoingStreams, WindowPacket
from culver.overlay.core.overlay_messages import StreamPart
from support.linked_nodes import BONN, LYON

KILOBYTE = bytes(1024 - 16)


def opened(*sites: str, acknowledged: int = 0) -> OutgoingStreams:
    streams = OutgoingStreams()
    for site in sites:
        streams.open(site, acknowledged, 100)
        streams.reach(site, True)
    return streams


def offer(streams: OutgoingStreams, site: str, *offsets: int, payload: bytes = b"e") -> None:
    streams.offer(site, streams.generation(site), [(offset, payload) for offset in offsets])


def sent(streams: OutgoingStreams, now: float = 0.0) -> list[WindowPacket]:
    packets, gaps = streams.flush(now)
    assert not gaps
    return packets


def offsets_to(site: str, packets: list[WindowPacket]) -> list[int]:
    return sorted(offset for packet in packets if site in packet.streams for offset in packet.offsets)


def test_events_are_grouped_by_their_destinations() -> None:
    streams = opened(LYON, BONN)
    offer(streams, LYON, 12, 15, 16)
    offer(streams, BONN, 12, 16, 17)
    lyon, bonn = StreamPart(0, 17, 2), StreamPart(0, 18, 2)
    assert sent(streams) == [
        WindowPacket(101, {LYON: lyon, BONN: bonn}, (12, 16), (b"e", b"e")),
        WindowPacket(101, {LYON: lyon}, (15,), (b"e",)),
        WindowPacket(101, {BONN: bonn}, (17,), (b"e",)),
    ]
    assert sent(streams) == []


def test_each_window_begins_where_the_last_one_ended() -> None:
    streams = opened(LYON, acknowledged=5)
    offer(streams, LYON, 7, 9)
    assert sent(streams)[0].streams == {LYON: StreamPart(5, 10, 1)}
    offer(streams, LYON, 30)
    (packet,) = sent(streams)
    assert packet.streams == {LYON: StreamPart(10, 31, 1)}
    assert packet.window == 102


def test_a_window_has_packets_of_64_kilobytes() -> None:
    streams = opened(LYON)
    streams.acknowledge(LYON, 0, 0.0)
    offer(streams, LYON, 0, payload=bytes(100_000))
    (packet,) = sent(streams)
    assert packet.streams == {LYON: StreamPart(0, 1, 1)}
    streams.acknowledge(LYON, 1, 0.1)
    offer(streams, LYON, *range(1, 101), payload=KILOBYTE)
    packets = sent(streams, 0.2)
    assert [len(packet.offsets) for packet in packets] == [64, 36]
    assert {packet.streams[LYON] for packet in packets} == {StreamPart(1, 101, 2)}


def test_no_more_is_under_way_than_a_stream_may_have() -> None:
    streams = opened(LYON)
    assert streams.wanted_bytes(LYON) == 128 * 1024
    offer(streams, LYON, *range(100), payload=KILOBYTE)
    assert len(offsets_to(LYON, sent(streams))) == 64
    assert streams.wanted_bytes(LYON) == 28 * 1024
    assert sent(streams) == []
    assert streams.backlog(LYON) == (64 * 1024, 36 * 1024, 0)


def test_an_acknowledgement_lets_more_be_under_way_and_a_loss_half_of_it() -> None:
    streams = opened(LYON)
    offer(streams, LYON, *range(64), payload=KILOBYTE)
    sent(streams)
    assert streams.acknowledge(LYON, 64, 0.1)
    assert streams.wanted_bytes(LYON) == 2 * 128 * 1024
    offer(streams, LYON, 64)
    sent(streams, 1.0)
    assert streams.tick(2.0) == [(LYON, 64)]
    assert streams.wanted_bytes(LYON) == 2 * 64 * 1024
    for _ in range(5):
        offer(streams, LYON, 64)
        sent(streams, 10.0)
        assert streams.resend(LYON, 20.0) == 64
    assert streams.wanted_bytes(LYON) == 2 * 4 * 1024


def test_later_acknowledgements_let_less_be_under_way_until_they_come_as_soon_as_before() -> None:
    streams = opened(LYON)
    wanted, now, offset = [], 0.0, 0
    for round_trip in [0.01] * 3 + [0.5] * 6 + [0.01] * 2:
        count = streams.wanted_bytes(LYON) // 2048
        offer(streams, LYON, *range(offset, offset + count), payload=KILOBYTE)
        sent(streams, now)
        offset, now = offset + count, now + round_trip
        streams.acknowledge(LYON, offset, now)
        wanted.append(streams.wanted_bytes(LYON) // 2048)
    assert wanted == [128, 256, 512, 4, 4, 4, 4, 4, 4, 8, 16]


def test_a_way_that_has_become_longer_is_used_to_the_full_after_two_minutes() -> None:
    streams = opened(LYON)
    now, wanted = 0.0, []
    for offset in range(520):
        offer(streams, LYON, offset, payload=KILOBYTE)
        sent(streams, now)
        now += 0.01 if offset < 100 else 0.5
        streams.acknowledge(LYON, offset + 1, now)
        wanted.append(streams.wanted_bytes(LYON))
    assert wanted[99] > wanted[270] == 2 * 4 * 1024
    assert wanted[519] > wanted[99]


def test_a_stream_without_an_answer_is_sent_again_ever_more_rarely() -> None:
    streams = opened(LYON)
    times: list[float] = []
    now = 0.0
    while len(times) < 6:
        offer(streams, LYON, 3)
        sent(streams, now)
        now = round(now + 0.1, 1)
        if streams.tick(now):
            times.append(now)
    assert times == [1.0, 3.0, 7.0, 15.0, 25.0, 35.0]
    assert streams.backlog(LYON)[2] == 6


def test_nothing_is_sent_again_while_acknowledgements_come() -> None:
    streams = opened(LYON)
    for step in range(1, 30):
        offer(streams, LYON, step)
        sent(streams, step / 10)
        streams.acknowledge(LYON, step, step / 10)
        assert streams.tick(step / 10) == []


def test_a_site_that_missed_something_gets_the_stream_again_once() -> None:
    streams = opened(LYON)
    offer(streams, LYON, 1, 2)
    sent(streams)
    streams.acknowledge(LYON, 2, 0.5)
    generation = streams.generation(LYON)
    assert streams.resend(LYON, 1.0) == 2
    assert streams.generation(LYON) == generation + 1
    assert streams.resend(LYON, 1.0) is None
    offer(streams, LYON, 2)
    (packet,) = sent(streams, 1.0)
    assert packet.streams == {LYON: StreamPart(2, 3, 1)}
    assert streams.resend(LYON, 1.1) is None
    assert streams.resend(LYON, 2.0) == 2


def test_offers_of_an_earlier_generation_are_ignored() -> None:
    streams = opened(LYON)
    before = streams.generation(LYON)
    offer(streams, LYON, 1)
    sent(streams)
    streams.tick(5.0)
    streams.offer(LYON, before, [(2, b"e")])
    streams.offer(BONN, 0, [(2, b"e")])
    assert sent(streams, 5.0) == []


def test_a_slow_site_does_not_hold_up_another() -> None:
    streams = opened(LYON, BONN)
    for first in range(0, 640, 64):
        offer(streams, BONN, *range(first, first + 64), payload=KILOBYTE)
        if first < 128:
            offer(streams, LYON, *range(first, first + 64), payload=KILOBYTE)
        packets = sent(streams, first / 100)
        assert offsets_to(BONN, packets) == list(range(first, first + 64))
        assert offsets_to(LYON, packets) == (list(range(64)) if first == 0 else [])
        streams.acknowledge(BONN, first + 64, first / 100)


def test_a_gap_waits_for_what_is_before_it() -> None:
    streams = opened(LYON)
    gap = MailboxGap(5, 9, "full")
    streams.offer(LYON, streams.generation(LYON), [(3, b"e"), gap, (9, b"e")])
    assert offsets_to(LYON, sent(streams)) == [3]
    assert sent(streams) == []
    streams.acknowledge(LYON, 4, 0.1)
    assert streams.flush(0.1) == ([], [(LYON, gap)])
    (packet,) = sent(streams, 0.2)
    assert packet.streams == {LYON: StreamPart(9, 10, 1)}


def test_a_gap_without_an_answer_is_told_again() -> None:
    streams = opened(LYON)
    gap = MailboxGap(0, 9, "full")
    for now in (0.0, 1.0):
        streams.offer(LYON, streams.generation(LYON), [gap])
        assert streams.flush(now) == ([], [(LYON, gap)])
        assert streams.tick(now + 2.0) == [(LYON, 0)]


def test_a_gap_that_the_site_is_past_is_dropped() -> None:
    streams = opened(LYON, acknowledged=9)
    streams.offer(LYON, streams.generation(LYON), [MailboxGap(5, 9, "full"), (9, b"e")])
    assert offsets_to(LYON, sent(streams)) == [9]
    streams.acknowledge(LYON, 10, 0.1)
    assert streams.tick(100.0) == []


def test_a_site_that_cannot_be_reached_gets_nothing_until_it_can() -> None:
    streams = opened(LYON)
    offer(streams, LYON, 1, 2)
    sent(streams)
    streams.acknowledge(LYON, 2, 0.1)
    assert streams.reach(LYON, False) == 2
    assert streams.wanted_bytes(LYON) == 0
    offer(streams, LYON, 2)
    assert sent(streams, 1.0) == []
    assert streams.tick(100.0) == []
    assert streams.reach(LYON, True) == 2
    assert streams.reach(LYON, True) is None
    offer(streams, LYON, 2)
    assert offsets_to(LYON, sent(streams, 101.0)) == [2]


def test_a_site_may_have_more_than_this_run_has_sent() -> None:
    streams = opened(LYON)
    offer(streams, LYON, 3, 8, 20)
    assert streams.acknowledge(LYON, 10, 0.0)
    assert not streams.acknowledge(LYON, 7, 0.0)
    (packet,) = sent(streams)
    assert packet.streams == {LYON: StreamPart(10, 21, 1)}
    assert packet.offsets == (20,)


def test_a_closed_stream_takes_nothing() -> None:
    streams = opened(LYON)
    streams.close(LYON)
    assert LYON not in streams
    assert streams.wanted_bytes(LYON) == 0
    assert streams.reach(LYON, True) is None
    assert not streams.acknowledge(LYON, 1, 0.0)
    assert streams.resend(LYON, 0.0) is None


def test_what_has_arrived_makes_room_before_it_is_acknowledged() -> None:
    streams = OutgoingStreams()
    streams.open(LYON, 0, 0)
    streams.reach(LYON, True)
    streams.offer(LYON, streams.generation(LYON), [(0, b"a"), (1, b"b")])
    streams.flush(1.0)
    assert streams.backlog(LYON)[0] > 0
    streams.land(LYON, 2, 1.1)
    assert streams.backlog(LYON)[0] == 0
    assert streams.acknowledged_position(LYON) == 0
    assert streams.sent_position(LYON) == 2


def test_a_stream_goes_on_from_a_position_but_not_from_before_what_is_acknowledged() -> None:
    streams = OutgoingStreams()
    streams.open(LYON, 5, 0)
    generation = streams.generation(LYON)
    assert streams.go_to(LYON, 8) == streams.sent_position(LYON) == 8
    assert streams.go_to(LYON, 2) == 5
    assert streams.generation(LYON) == generation + 2
