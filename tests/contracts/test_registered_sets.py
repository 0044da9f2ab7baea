"""Sets of subscriptions in every registry: a member is a subscription like any other, however it was added."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from culver.config import RegistrySettings
from culver.errors import Conflict, InvalidRequest, NotFound, TooManySubscriptions
from culver.registry.registration import Block, Registration
from culver.registry.registry import Registry, SetSummary
from culver.registry.subscription_ids import split_member
from support.registries import REGISTRIES, at, must_not_be_called
from support.subscriptions import block_spec, expanded, spec

OpenIn = Callable[[Path], Registry]
SETTINGS = RegistrySettings(max_subscriptions=5_000)
ROWS = [["ACME", 1.5], ["EMCA", 2.0], ["ACME", 3.0]]


@pytest.fixture(params=list(REGISTRIES))
def open_registry(request: pytest.FixtureRequest) -> OpenIn:
    """Opens the registry in a directory."""
    return lambda directory: REGISTRIES[request.param](directory, SETTINGS)


@pytest.fixture
def registry(open_registry: OpenIn, tmp_path: Path) -> Iterator[Registry]:
    with closing(open_registry(tmp_path)) as registry:
        yield registry


def test_rows_become_subscriptions_named_after_their_set(registry: Registry) -> None:
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


def test_rows_that_come_later_are_numbered_on(registry: Registry) -> None:
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


def test_name_of_a_member_is_taken(registry: Registry) -> None:
    registry.add_block(block_spec("quotes", ROWS), at(1), 1)
    with pytest.raises(Conflict):
        registry.add([spec("quotes.2")], must_not_be_called, 1)
    registry.remove(["quotes.2"], at(2), 1)
    registry.add([spec("quotes.2")], at(3), 1)
    assert registry.get("quotes.2").filter == "price > 20"


@pytest.mark.parametrize("bad", ["", "-a", "a b", "live-a", "a" * 101, "a/b"])
def test_unusable_names_are_refused(registry: Registry, bad: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        registry.add_block(block_spec(bad, ROWS), must_not_be_called, 1)
    assert caught.value.field == "name"


def test_limit_on_subscriptions_counts_members(registry: Registry) -> None:
    registry.add_block(block_spec("a", [["x", 1.0]] * 4_999), at(1), 1)
    with pytest.raises(TooManySubscriptions):
        registry.add_block(block_spec("b", ROWS[:2]), must_not_be_called, 1)
    registry.remove(["a.7"], at(2), 1)
    registry.add_block(block_spec("b", ROWS[:2]), at(3), 1)
    assert registry.count() == 5_000


def test_removing_a_set_that_is_not_there_changes_nothing(registry: Registry) -> None:
    registry.add([spec("quotes.x")], at(1), 1)
    assert registry.remove_set("quotes", must_not_be_called, 1) == []


def test_block_whose_members_have_all_left_leaves_nothing_behind(registry: Registry) -> None:
    block = registry.add_block(block_spec("quotes", ROWS), at(1), 1)
    registry.remove([f"quotes.{i}" for i in range(3)], at(2), 1)
    assert not any(isinstance(each, Block) for each in registry.registrations())
    registry.forget(range(block.number, block.number + 3))
    assert list(registry.registrations()) == []
    assert registry.add_block(block_spec("quotes", ROWS), at(3), 1).number > block.number + 2


@pytest.mark.parametrize("after", ["", "0", "1", "10", "11x", "109.5", "2", "998", "9989", "9z", "1004", "x"])
def test_pages_order_members_by_their_ids_as_texts(registry: Registry, after: str) -> None:
    for start, count in ((7, 6), (95, 30), (995, 10)):
        registry.add([spec(f"a.{start - 1}")], at(1), 1)  # the next row has place `start`
        assert registry.add_block(block_spec("a", [["x", 1.0]] * count), at(1), 1).first == start
    registry.remove(["a.99", "a.100", "a.998"], at(2), 1)
    places = {6, *range(7, 13), *range(94, 125), *range(994, 1005)} - {99, 100, 998}
    expected = sorted(f"a.{place}" for place in places if f"a.{place}" > f"a.{after}")
    assert [each.id for each in registry.page(f"a.{after}", 1_000)] == expected
    assert [each.id for each in registry.page(f"a.{after}", 3)] == expected[:3]


def test_sets_are_listed_by_name_page_by_page(registry: Registry) -> None:
    for name in ("b", "a", "a.1", "c"):
        registry.add_block(block_spec(name, ROWS), at(1), 1)
    registry.add_block(block_spec("a", ROWS[:2], text="other = ? AND close >= ?"), at(1), 1)
    registry.remove(["b.2", "c.0", "c.1", "c.2"], at(2), 1)
    found = [(each.name, each.count, each.next) for each in registry.sets(None, 10)]
    assert found == [("a", 5, 5), ("a.1", 3, 3), ("b", 2, 3)]
    assert {text.split()[0] for text in registry.sets(None, 1)[0].filters} == {"symbol", "other"}
    assert [each.name for each in registry.sets("a", 1)] == ["a.1"]
    assert registry.sets("b", 10) == []


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("seed", range(6))
def test_sets_give_the_same_answers_as_subscriptions_added_one_by_one(
    open_registry: OpenIn, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    for steps in (50, 0):
        with (
            closing(open_registry(tmp_path / "sets")) as sets,
            closing(open_registry(tmp_path / "singles")) as singles,
        ):
            for step in range(steps):
                play(rng, step, sets, singles)
                compare(rng, sets, singles)
            compare(rng, sets, singles)


def play(rng: random.Random, now: int, sets: Registry, singles: Registry) -> None:
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


def compare(rng: random.Random, sets: Registry, singles: Registry) -> None:
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
