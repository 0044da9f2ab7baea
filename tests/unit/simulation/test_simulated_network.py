from random import Random

import pytest

from culver.simulation import ConnectionEnd, LinkQuality, SimulatedNetwork, VirtualClock

STEADY = LinkQuality(latency_seconds=0.01, jitter_seconds=0)


class Ear:
    """Remembers what it hears, and when."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.heard: list[tuple[float, object]] = []
        self.ends: list[ConnectionEnd] = []

    def opened(self, end: ConnectionEnd) -> None:
        self.ends.append(end)
        self._hear("opened")

    def received(self, end: ConnectionEnd, message: object) -> None:
        self._hear(message)

    def closed(self, end: ConnectionEnd) -> None:
        self._hear("closed")

    def _hear(self, what: object) -> None:
        self.heard.append((round(self.clock.now, 6), what))

    @property
    def words(self) -> list[object]:
        return [what for _, what in self.heard]


class Pair:
    """A network with one connection from ``left`` to ``right``."""

    def __init__(self, quality: LinkQuality = STEADY, seed: int = 1, *, opened: bool = True) -> None:
        self.clock = VirtualClock()
        self.network = SimulatedNetwork(self.clock, Random(seed), quality)
        self.left, self.right = Ear(self.clock), Ear(self.clock)
        self.network.listen("right", lambda _: self.right)
        self.end = self.network.connect("left", "right", self.left)
        if opened:
            assert self.clock.run_while(lambda: not self.end.is_open, limit_seconds=5)
            self.left.heard.clear()
            self.right.heard.clear()

    @property
    def other_end(self) -> ConnectionEnd:
        return self.right.ends[-1]


def test_a_connection_opens_after_a_round_trip_and_carries_messages_both_ways() -> None:
    pair = Pair(opened=False)
    pair.clock.run_until(0.02)
    assert pair.right.heard == [(0.01, "opened")]
    assert pair.left.heard == [(0.02, "opened")]
    pair.end.send("hello")
    pair.other_end.send("welcome")
    pair.clock.run_until(1)
    assert pair.right.heard[1:] == [(0.03, "hello")]
    assert pair.left.heard[1:] == [(0.03, "welcome")]
    assert pair.network.traffic["left", "right"].messages == 1


def test_a_greeting_of_the_acceptor_does_not_overtake_the_opening() -> None:
    class Greeter(Ear):
        def opened(self, end: ConnectionEnd) -> None:
            end.send("hello")

    for seed in range(50):
        pair = Pair(LinkQuality(jitter_seconds=0.05), seed, opened=False)
        pair.network.listen("right", lambda _, pair=pair: Greeter(pair.clock))  # type: ignore[misc]
        pair.clock.run_until(5)
        assert pair.left.words == ["opened", "hello"]


def test_messages_arrive_once_and_in_order_over_a_link_with_jitter_and_loss() -> None:
    pair = Pair(LinkQuality(jitter_seconds=0.1, loss=0.3))
    for number in range(200):
        pair.end.send(number)
        pair.clock.run_for(0.005)
    pair.clock.run_for(10)
    assert pair.right.words == list(range(200))
    assert pair.network.traffic["left", "right"].retransmissions > 20


def test_a_slow_link_sends_one_message_after_the_other_over_all_connections() -> None:
    pair = Pair()
    pair.network.set_quality("left", "right", LinkQuality(0.01, 0, bytes_per_second=1_000))
    second = pair.network.connect("left", "right", pair.left)
    pair.clock.run_for(0.1)
    start = pair.clock.now
    pair.right.heard.clear()
    pair.end.send("a", size_bytes=500)
    second.send("b", size_bytes=500)
    assert pair.end.unsent_bytes == second.unsent_bytes == 500
    pair.clock.run_for(5)
    assert pair.right.heard == [(round(start + 0.51, 6), "a"), (round(start + 1.01, 6), "b")]
    assert pair.end.unsent_bytes == 0
    pair.network.set_quality("left", "right", None)
    pair.end.send("c", size_bytes=500)
    pair.clock.run_for(0.01)
    assert pair.right.words[-1] == "c"


def test_nobody_listens_so_the_attempt_is_refused() -> None:
    pair = Pair()
    pair.network.stop_listening("right")
    pair.network.connect("left", "right", pair.left)
    pair.clock.run_for(0.021)
    assert pair.left.words == ["closed"]


def test_an_attempt_to_reach_a_vanished_machine_or_across_a_partition_times_out() -> None:
    for vanish in (True, False):
        pair = Pair()
        if vanish:
            pair.network.crash("right", silently=True)
        else:
            pair.network.partition(["left"], ["right"])
        ear = Ear(pair.clock)
        pair.network.connect("left", "right", ear)
        pair.clock.run_for(2.9)
        assert ear.words == []
        pair.clock.run_for(0.2)
        assert ear.words == ["closed"]


def test_an_attempt_that_its_owner_gives_up_is_never_told_of() -> None:
    pair = Pair()
    ears = [Ear(pair.clock), Ear(pair.clock)]
    pair.network.connect("left", "right", ears[0]).close()
    late = pair.network.connect("left", "right", ears[1])
    pair.clock.run_for(0.015)
    late.close()
    pair.clock.run_for(10)
    assert ears[0].words == ears[1].words == []
    assert pair.right.words == ["opened", "closed"]


def test_a_closed_connection_delivers_what_was_sent_before_its_end() -> None:
    pair = Pair()
    pair.end.send("last words")
    pair.end.close()
    pair.end.close()
    with pytest.raises(RuntimeError, match="not open"):
        pair.end.send("too late")
    pair.other_end.send("into the void")
    pair.clock.run_for(1)
    assert pair.right.words == ["last words", "closed"]
    assert pair.left.words == []
    assert pair.network.connections("left") == pair.network.connections("right") == []


def test_a_reset_lets_some_of_what_is_under_way_arrive_and_tells_both_ends() -> None:
    arrived = set()
    for seed in range(40):
        pair = Pair(seed=seed)
        for number in range(3):
            pair.end.send(number)
        pair.network.reset(pair.end)
        pair.end.send("vanishes")
        pair.clock.run_for(1)
        *messages, last = pair.right.words
        assert messages == list(range(len(messages)))
        assert last == "closed"
        assert pair.left.words == ["closed"]
        arrived.add(len(messages))
    assert arrived == {0, 1, 2, 3}


def test_a_half_open_connection_swallows_everything_until_the_time_out() -> None:
    pair = Pair()
    pair.end.send("under way")
    pair.network.make_half_open(pair.end)
    pair.end.send("lost")
    pair.other_end.send("lost too")
    pair.clock.run_for(14.9)
    assert pair.left.words == pair.right.words == []
    pair.clock.run_for(0.2)
    assert pair.left.words == pair.right.words == ["closed"]


def test_an_owner_that_closes_a_half_open_end_hears_nothing_and_the_other_waits() -> None:
    pair = Pair()
    pair.network.make_half_open(pair.end)
    pair.end.close()
    pair.clock.run_for(14.9)
    assert pair.right.words == []
    pair.clock.run_for(0.2)
    assert (pair.left.words, pair.right.words) == ([], ["closed"])


def test_a_partition_holds_messages_back_and_its_end_lets_them_through_in_order() -> None:
    pair = Pair()
    pair.end.send("before")
    cut = pair.network.partition(["left", "another"], ["right"])
    pair.end.send("during")
    pair.other_end.send("back")
    pair.clock.run_for(60)
    assert pair.right.words == pair.left.words == []
    cut.end()
    cut.end()
    pair.end.send("after")
    pair.clock.run_for(0.5)
    assert pair.right.words == ["before", "during", "after"]
    assert pair.left.words == ["back"]


def test_overlapping_partitions_hold_until_the_last_one_ends() -> None:
    pair = Pair()
    first = pair.network.partition(["left"], ["right"])
    second = pair.network.partition(["right"], ["left"])
    pair.end.send("patience")
    first.end()
    pair.clock.run_for(5)
    assert pair.right.words == []
    second.end()
    pair.clock.run_for(5)
    assert pair.right.words == ["patience"]


def test_a_one_way_partition_lets_the_other_direction_through() -> None:
    pair = Pair()
    pair.network.partition(["left"], ["right"], one_way=True)
    pair.end.send("held")
    pair.other_end.send("free")
    pair.clock.run_for(5)
    assert (pair.right.words, pair.left.words) == ([], ["free"])


def test_a_crash_tells_the_peers_and_not_the_node_and_a_restart_listens_again() -> None:
    pair = Pair()
    pair.network.crash("right")
    pair.clock.run_for(1)
    assert (pair.left.words, pair.right.words) == (["closed"], [])
    pair.network.listen("right", lambda _: pair.right)
    end = pair.network.connect("left", "right", pair.left)
    pair.clock.run_for(1)
    assert end.is_open


def test_a_machine_that_vanishes_is_noticed_after_the_time_out() -> None:
    pair = Pair()
    pair.network.crash("right", silently=True)
    pair.end.send("anybody there")
    pair.clock.run_for(14.9)
    assert pair.left.words == []
    pair.clock.run_for(0.2)
    assert pair.left.words == ["closed"]


def test_a_reset_across_a_partition_is_noticed_after_the_time_out() -> None:
    pair = Pair()
    pair.network.partition(["left"], ["right"])
    pair.network.crash("right")
    pair.clock.run_for(14.9)
    assert pair.left.words == []
    pair.clock.run_for(0.2)
    assert pair.left.words == ["closed"]


def test_a_reader_that_pauses_gets_everything_later_and_the_sender_sees_the_backlog() -> None:
    pair = Pair()
    pair.other_end.pause()
    pair.end.send("one", size_bytes=10)
    pair.end.send("two", size_bytes=20)
    pair.clock.run_for(5)
    assert pair.right.words == []
    assert pair.end.unsent_bytes == 30
    pair.other_end.resume()
    pair.clock.run_for(1)
    assert pair.right.words == ["one", "two"]
    assert pair.end.unsent_bytes == 0
