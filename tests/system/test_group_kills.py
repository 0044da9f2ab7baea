"""`kill -9` of the site and of the consumer of many subscriptions over one connection: nothing lost, nothing twice
beyond what a new connection may bring again."""

import sys
from pathlib import Path

import pytest

from support.group_storm import (
    GroupStorm,
    SetChanger,
    register_one_by_one,
    register_set,
)

SEED = 20130629
pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(1800)]


@pytest.mark.slow(seconds=40)
def test_set_gets_every_event_while_site_and_consumer_are_killed(tmp_path: Path, full_length: bool) -> None:
    storm = GroupStorm(tmp_path, [{"set": "storm"}], seed=SEED)
    tally = storm.run(
        lambda: register_set(storm.service, "storm", storm.members, 200_000 if full_length else 20_000),
        events_per_second=2_000 if full_length else 4_000,
        kills=12 if full_length else 4,
        pause_seconds=(0.5, 4.0) if full_length else (0.2, 1.5),
    )
    sys.stdout.write(f"{tally}\n")
    assert not any(tally.wrong), tally
    assert tally.pairs > 0


@pytest.mark.slow(seconds=30)
def test_groups_of_single_subscriptions_get_every_event(tmp_path: Path, full_length: bool) -> None:
    count = 2_000 if full_length else 400
    listed = [f"listed-{n}" for n in range(count, 2 * count)]
    storm = GroupStorm(tmp_path, [{"prefix": "alerts-"}, {"subscriptions": listed}], seed=SEED + 1)

    def prepare() -> None:
        register_one_by_one(storm.service, "alerts-", storm.members, count, 0)
        assert register_one_by_one(storm.service, "listed-", storm.members, count, 1) == listed

    tally = storm.run(
        prepare, events_per_second=1_000, kills=12 if full_length else 4, pause_seconds=(0.2, 1.5)
    )
    sys.stdout.write(f"{tally}\n")
    assert not any(tally.wrong), tally
    assert tally.pairs > 0


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("follow", [{"set": "storm"}, {"prefix": "sto"}])
def test_set_that_grows_and_shrinks_gets_every_event(
    tmp_path: Path, full_length: bool, follow: dict[str, str]
) -> None:
    if "prefix" in follow and not full_length:
        pytest.skip("the same again by prefix: run with --full")
    storm = GroupStorm(tmp_path, [follow], seed=SEED + 2)
    changer = SetChanger(storm.service, "storm", storm.members, SEED)
    tally = storm.run(
        lambda: register_set(storm.service, "storm", storm.members, 2_000),
        changer,
        events_per_second=1_000,
        kills=12 if full_length else 4,
        pause_seconds=(0.2, 1.5),
    )
    sys.stdout.write(f"{tally}\n")
    assert not any(tally.wrong), tally
    assert min(changer.added, changer.removed, tally.pairs) > 0
