"""When the load analyser observes channels, what it takes of them, and when it stops."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from culver.channels.core.balance.foreign_traffic import (
    MOST_OBSERVED_BYTES,
    MOST_OBSERVED_CHANNELS,
    MOST_OBSERVED_MESSAGES,
    OBSERVED_SECONDS,
    REST_SECONDS,
    ForeignTraffic,
    PublishCounts,
)
from culver.channels.core.channel_load import ChannelUse
from culver.channels.core.envelope import pack_message


class Looks:
    """Looks once a second at a server to which our clients and others publish."""

    def __init__(self, *, stranger: bool = False) -> None:
        self.traffic = ForeignTraffic()
        self.stranger = stranger
        self.now = 0.0
        self.published = self.reported = self.outgoing = self.reported_bytes = 0

    def look(self, ours: int = 0, reported: int = 0, foreign: int = 0, foreign_bytes: int = 0) -> bool:
        """Returns whether an observation should begin."""
        self.now += 1.0
        self.published += ours + foreign
        self.reported += reported
        self.outgoing += 100 * ours + foreign_bytes
        self.reported_bytes += 100 * reported
        counts = PublishCounts(
            self.published, self.reported, self.outgoing, self.reported_bytes, self.stranger
        )
        self.traffic.look(counts)
        return self.traffic.wants_names(self.now)

    def observe(self, messages: dict[bytes, int], subscribers: dict[bytes, int]) -> None:
        """Observes channels for the whole time; so many messages of other programs come in it."""
        self.traffic.begin(self.traffic.choose(messages, (), self.now), self.now)
        for channel, count in messages.items():
            for _ in range(count):
                assert self.traffic.heard(channel, b"x" * 50, self.now)
        self.now += OBSERVED_SECONDS
        assert self.traffic.is_over(self.now)
        self.traffic.finish(subscribers, self.now)


def _steady(second: int) -> int:
    return 1_000


def _steps(second: int) -> int:
    return 10_000 if second >= 40 else 10


def _ramp(second: int) -> int:
    return 50 * second


def _bursts(second: int) -> int:
    return 8_000 if second % 11 == 0 else 5


@pytest.mark.parametrize("rate", [_steady, _steps, _ramp, _bursts])
@pytest.mark.parametrize("lag", [0, 1, 3, 6])
def test_publishers_that_report_late_are_never_observed(rate: Callable[[int], int], lag: int) -> None:
    looks = Looks()
    for second in range(300):
        reported = rate(second - lag) if second >= lag else 0
        assert not looks.look(ours=rate(second), reported=reported)


def test_reports_that_are_lost_with_their_clients_are_no_reason_to_observe() -> None:
    random = Random(1)
    looks = Looks()
    for _ in range(300):
        rate = random.randint(0, 2_000)
        assert not looks.look(ours=rate, reported=0 if random.random() < 0.1 else rate)


def test_load_without_reports_is_noticed_after_some_seconds_and_at_once_where_a_stranger_was_seen() -> None:
    def seconds(*, stranger: bool) -> int:
        looks = Looks(stranger=stranger)
        return next(second for second in range(60) if looks.look(foreign=200))

    assert 8 <= seconds(stranger=False) <= 12
    assert 3 <= seconds(stranger=True) <= 6


def test_foreign_part_of_a_busy_server_is_noticed() -> None:
    looks = Looks()
    assert any(looks.look(ours=500, reported=500, foreign=300) for _ in range(60))


def test_few_large_messages_are_noticed_by_their_bytes_if_a_stranger_was_seen() -> None:
    looks = Looks()
    assert not any(looks.look(ours=100, reported=100, foreign=1, foreign_bytes=1 << 20) for _ in range(60))
    looks = Looks(stranger=True)
    assert any(looks.look(ours=100, reported=100, foreign=1, foreign_bytes=1 << 20) for _ in range(60))


def test_bytes_alone_are_no_reason_where_all_publishers_are_ours() -> None:
    looks = Looks()
    assert not any(looks.look(ours=10, reported=10, foreign_bytes=1 << 24) for _ in range(100))


def test_counts_of_a_server_that_was_started_again_begin_anew() -> None:
    looks = Looks()
    for _ in range(7):
        looks.look(foreign=100)
    looks.published = looks.outgoing = 0
    assert not any(looks.look(foreign=100) for _ in range(5))


def test_what_was_observed_counts_every_second_until_it_ends() -> None:
    looks = Looks(stranger=True)
    while not looks.look(foreign=200):
        pass
    looks.observe({b"hot": 600, b"slow": 1, b"idle": 0}, {b"hot": 11, b"slow": 2})
    sums: dict[bytes, list[int]] = {}
    for _ in range(20):
        looks.look(foreign=200)
        for use in looks.traffic.take_uses(looks.now):
            total = sums.setdefault(use.channel, [0, 0, 0])
            for index, figure in enumerate((use.publications, use.payload_bytes, use.receivers)):
                total[index] += figure
    assert sums == {b"hot": [4_000, 200_000, 40_000], b"slow": [6, 300, 6]}
    for _ in range(6):
        looks.look()
        looks.traffic.take_uses(looks.now)
    looks.look()
    assert looks.traffic.take_uses(looks.now) == []


def test_estimate_ends_if_no_further_observation_confirms_it() -> None:
    looks = Looks(stranger=True)
    while not looks.look(foreign=200):
        pass
    looks.observe({b"hot": 600}, {b"hot": 2})
    uses: list[ChannelUse] = []
    for _ in range(200):
        looks.look(foreign=200)
        uses = looks.traffic.take_uses(looks.now)
    assert uses == []


def test_messages_of_our_clients_are_not_counted() -> None:
    looks = Looks(stranger=True)
    while not looks.look(foreign=200):
        pass
    looks.traffic.begin([b"c"], looks.now)
    for sequence in range(100):
        assert looks.traffic.heard(b"c", pack_message(1, 1, 0, sequence, b"x"), looks.now + 1)
    looks.now += OBSERVED_SECONDS
    looks.traffic.finish({}, looks.now)
    looks.look(foreign=200)
    assert looks.traffic.take_uses(looks.now) == []


@pytest.mark.parametrize(
    ("size", "most"), [(10, MOST_OBSERVED_MESSAGES), (100_000, -(-MOST_OBSERVED_BYTES // 100_000))]
)
def test_observer_stops_at_once_when_it_has_taken_enough(size: int, most: int) -> None:
    looks = Looks()
    looks.look()
    looks.traffic.begin([b"c"], looks.now)
    data, heard = b"x" * size, 1
    while looks.traffic.heard(b"c", data, looks.now + 0.5):
        heard += 1
    assert heard == most
    assert looks.traffic.is_over(looks.now + 0.5)
    looks.now += 1.0
    looks.traffic.finish({b"c": 3}, looks.now)
    looks.look(foreign=10**6)
    (use,) = looks.traffic.take_uses(looks.now)
    assert use.publications == 2 * most, "so many came in half a second"
    assert use.receivers == 2 * use.publications


def test_observer_rests_between_observations_and_longer_where_it_finds_nothing() -> None:
    looks = Looks(stranger=True)
    began = []
    while looks.now < 1_000:
        if looks.look(foreign=200):
            began.append(looks.now)
            looks.observe({b"idle": 0}, {})
    rests = [later - earlier for earlier, later in pairwise(began)]
    assert rests[0] >= REST_SECONDS
    assert rests == sorted(rests)
    assert rests[-1] > 4 * REST_SECONDS


def test_channels_that_nobody_reports_come_first_and_each_observation_takes_others() -> None:
    traffic = ForeignTraffic()
    names = [b"%05d" % number for number in range(2_000)] + [b"__culver:ring"]
    reported = frozenset(names[:1_000])
    chosen = [traffic.choose(names, reported, now) for now in (0.0, 60.0)]
    assert chosen[0] == names[1_000:1_512]
    assert chosen[1][:488] == names[1_512:2_000]
    assert [len(each) for each in chosen] == [MOST_OBSERVED_CHANNELS] * 2


def test_channels_with_foreign_messages_are_observed_again() -> None:
    looks = Looks()
    looks.observe({b"%05d" % number: int(number == 7) for number in range(500)}, {})
    names = [b"%05d" % number for number in range(2_000)]
    chosen = looks.traffic.choose(names, (), looks.now)
    assert chosen[0] == b"00007"
    assert chosen[1:] == names[500:1_011]


def test_observation_that_breaks_counts_for_nothing() -> None:
    looks = Looks(stranger=True)
    while not looks.look(foreign=200):
        pass
    looks.traffic.begin([b"c"], looks.now)
    looks.traffic.heard(b"c", b"x", looks.now)
    looks.traffic.abandon(looks.now)
    assert not looks.traffic.is_over(looks.now + 10)
    assert not looks.look(foreign=200)
    assert looks.traffic.take_uses(looks.now) == []
