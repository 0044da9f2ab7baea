"""Sets of subscriptions in every registry: a member is a subscription like any other, however it was added."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from culver.config import RegistrySettings
from culver.errors import Conflict, InvalidRequest, NotFound, TooManySubscriptions
from culver.registry.block import Block
from culver.registry.registration import Registration
from culver.registry.registry import SetSummary
from culver.registry.sqlite_registry import SqliteRegistry
from culver.registry.subscription_ids import split_member
from support.subscriptions import block_spec, expanded, spec

SETTINGS = RegistrySettings(max_subscriptions=5_000)
ROWS = [["ACME", 1.5], ["EMCA", 2.0], ["ACME", 3.0]]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SqliteRegistry]:
    with SqliteRegistry(tmp_path / "registry.db", SETTINGS) as registry:
        yield registry


def at(position: int) -> Callable[[int], int]:
    return lambda version: position


def must_not_be_called(version: int) -> int:
    raise AssertionError("a position was asked for, and there is no change")


def test_rows_become_subscriptions_named_after_their_set(registry: SqliteRegistry) -> None:
    block = registry.add_block(block_spec("quotes", ROWS, mailbox_count=5, expires_at_us=99), at(100), 42)
    assert (block.first, block.count, block.since, block.version) == (0, 3, 100, 1)
    member = registry.get("quotes.1")
    assert (member.id, member.filter) == ("quotes.1", "symbol = 'EMCA' AND close >= 2.0")
    assert (member.since, member.until, member.durable, member.removed) == (100, None, True, False)
    assert (member.mailbox_count, member.expires_at_us, member.created_at_us) == (5, 99, 42)
    assert registry.count() == 3
    for other in ("quotes.3", "quotes", "quotes.01", "quotes.-1", "other.1"):
        with pytest.raises(NotFound):
            registry.get(other)


def test_rows_that_come_later_are_numbered_on(registry: SqliteRegistry) -> None:
    registry.add_block(block_spec("quotes", ROWS), at(1), 1)
    with pytest.raises(Conflict) as caught:
        registry.add_block(block_spec("quotes", ROWS, first=0), must_not_be_called, 1)
    assert (caught.value.field, caught.value.details["next"]) == ("first", 3)
    assert registry.add_block(block_spec("quotes", ROWS[:1], first=3), at(1), 1).first == 3
    registry.add([spec("quotes.9"), spec("quotes.007"), spec("quotes.x"), spec("quotes.1.50")], at(1), 1)
    assert registry.add_block(block_spec("quotes", ROWS), at(1), 1).first == 10
    assert registry.sets(None, 10) == [SetSummary("quotes", 8, 13, ("symbol = ? AND close >= ?",))]
    assert len(registry.remove_set("quotes", at(2), 1)) == 4
    assert [r.id for r in registry.page(None, 10)] == ["quotes.007", "quotes.1.50", "quotes.x"]
    assert registry.add_block(block_spec("quotes", ROWS), at(3), 1).first == 0


def test_name_of_a_member_is_taken(registry: SqliteRegistry) -> None:
    registry.add_block(block_spec("quotes", ROWS), at(1), 1)
    with pytest.raises(Conflict):
        registry.add([spec("quotes.2")], must_not_be_called, 1)
    registry.remove(["quotes.2"], at(2), 1)
    registry.add([spec("quotes.2")], at(3), 1)
    assert registry.get("quotes.2").filter == "price > 20"


@pytest.mark.parametrize("bad", ["", "-a", "a b", "live-a", "a" * 101, "a/b"])
def test_unusable_names_are_refused(registry: SqliteRegistry, bad: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        registry.add_block(block_spec(bad, ROWS), must_not_be_called, 1)
    assert caught.value.field == "name"


def test_limit_on_subscriptions_counts_members(registry: SqliteRegistry) -> None:
    registry.add_block(block_spec("a", [["x", 1.0]] * 4_999), at(1), 1)
    with pytest.raises(TooManySubscriptions):
        registry.add_block(block_spec("b", ROWS[:2]), must_not_be_called, 1)
    registry.remove(["a.7"], at(2), 1)
    registry.add_block(block_spec("b", ROWS[:2]), at(3), 1)
    assert registry.count() == 5_000


def test_removing_a_set_that_is_not_there_changes_nothing(registry: SqliteRegistry) -> None:
    registry.add([spec("quotes.x")], at(1), 1)
    assert registry.remove_set("quotes", must_not_be_called, 1) == []


def test_block_whose_members_have_all_left_leaves_nothing_behind(registry: SqliteRegistry) -> None:
    block = registry.add_block(block_spec("quotes", ROWS), at(1), 1)
    registry.remove([f"quotes.{i}" for i in range(3)], at(2), 1)
    assert not any(isinstance(each, Block) for each in registry.registrations())
    registry.forget(range(block.number, block.number + 3))
    assert list(registry.registrations()) == []
    assert registry.add_block(block_spec("quotes", ROWS), at(3), 1).number > block.number + 2


@pytest.mark.parametrize("seed", range(6))
def test_sets_give_the_same_answers_as_subscriptions_added_one_by_one(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with (
        SqliteRegistry(tmp_path / "sets.db", SETTINGS) as sets,
        SqliteRegistry(tmp_path / "singles.db", SETTINGS) as singles,
    ):
        for step in range(50):
            play(rng, step, sets, singles)
            compare(rng, sets, singles)
    with (
        SqliteRegistry(tmp_path / "sets.db", SETTINGS) as sets,
        SqliteRegistry(tmp_path / "singles.db", SETTINGS) as singles,
    ):
        compare(rng, sets, singles)


def play(rng: random.Random, now: int, sets: SqliteRegistry, singles: SqliteRegistry) -> None:
    """The same change in both."""
    ids = [each.id for each in singles.page(None, 10_000)]
    match rng.choice(["rows", "rows", "single", "replace", "remove", "remove", "set", "expire", "forget"]):
        case "rows":
            name = rng.choice(["a", "a.1", "a-b", "b"])
            rows = [[rng.choice("xyz"), rng.randrange(100) / 4] for _ in range(rng.choice([1, 3, 12, 120]))]
            expires = rng.choice([None, None, now + 5])
            block = sets.add_block(block_spec(name, rows, expires_at_us=expires), at(now), now)
            ones = [
                spec(f"{name}.{block.first + i}", f"symbol = '{s}' AND close >= {c}", expires_at_us=expires)
                for i, (s, c) in enumerate(rows)
            ]
            assert expanded([block]) == singles.add(ones, at(now), now)
        case "single":
            name = f"{rng.choice(['a', 'a.2', 'c'])}.{rng.randrange(300)}"
            if name not in ids:
                assert sets.add([spec(name)], at(now), now) == singles.add([spec(name)], at(now), now)
        case "replace" if ids:
            wanted = spec(rng.choice(ids), "z = 1", expires_at_us=rng.choice([None, now + 3]))
            assert sets.replace(wanted, at(now), now) == singles.replace(wanted, at(now), now)
        case "remove" if ids:
            chosen = rng.sample(ids, min(len(ids), rng.choice([1, 5, 40])))
            assert sets.remove(chosen, at(now), now) == singles.remove(chosen, at(now), now)
        case "set":
            name = rng.choice(["a", "a.1", "b"])
            chosen = [each for each in ids if (split_member(each) or [""])[0] == name]
            ended = singles.remove(chosen, at(now), now)
            assert expanded(sets.remove_set(name, at(now), now)) == sorted(ended, key=lambda r: r.number)
        case "expire":
            assert expanded(sets.remove_expired(at(now), now)) == singles.remove_expired(at(now), now)
        case "forget":
            ended_blocks = [
                each for each in sets.registrations() if isinstance(each, Block) and each.until is not None
            ]
            together = {number for block in ended_blocks for number in block.numbers().tolist()}
            alone = [
                r.number for r in expanded(singles.registrations()) if r.until and r.number not in together
            ]
            chosen_blocks = [block for block in ended_blocks if rng.random() < 0.7]
            chosen_numbers = [number for number in alone if rng.random() < 0.7]
            sets.forget(chosen_numbers, [block.number for block in chosen_blocks])
            singles.forget(
                [*chosen_numbers, *(n for block in chosen_blocks for n in block.numbers().tolist())]
            )


def compare(rng: random.Random, sets: SqliteRegistry, singles: SqliteRegistry) -> None:
    assert (sets.version, sets.count()) == (singles.version, singles.count())
    assert expanded(sets.registrations()) == list(singles.registrations())
    everything = singles.page(None, 10_000)
    assert sets.page(None, 10_000) == everything
    after = rng.choice(
        [None, "a", "a.", "a.1", "a.10", "a.1.2", "b.5", "zz", *(r.id for r in everything[:50])]
    )
    assert sets.page(after, 7) == singles.page(after, 7)
    if everything:
        one = rng.choice(everything)
        assert sets.get(one.id) == one
    version = rng.randrange(singles.version + 1)
    ours, theirs = sets.changes(version), singles.changes(version)
    added = [r for r in theirs.added if isinstance(r, Registration)]
    assert expanded(ours.added) == sorted(added, key=lambda r: r.number)
    together = [(n, block.until) for block in ours.ended_blocks for n in block.numbers().tolist()]
    assert sorted([*ours.ended, *together]) == sorted(theirs.ended)
