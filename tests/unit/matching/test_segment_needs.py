"""The needs of a segment, against the reference, need by need."""

import random
import threading
from collections.abc import Iterator, Sequence

import pytest

from culver.jit import Shorts
from culver.matching.index.compile.constraint_codec import constraint_to_text
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.needs import need_cache
from culver.matching.index.needs.need_lookup import TextLookup
from culver.matching.index.needs.segment_needs import SegmentNeeds
from culver.model.columns.event_batch import concat, encode
from culver.model.event import Event
from culver.model.language.patterns import parse_pattern, shape_of
from culver.model.language.predicate import (
    Arithmetic,
    Attribute,
    Between,
    Comparison,
    Computed,
    Constraint,
    Contains,
    Literal,
    OneOf,
    Operand,
    Operator,
    Pattern,
    PatternShape,
    Presence,
    satisfies,
)
from culver.model.timestamps import parse_timestamp
from culver.model.values import Domain, Timestamp, Value
from support.events import INTEGERS_64, NAMES, REALS, SMALL_INTEGERS, STRINGS, TIMESTAMPS, random_event

ODD_NAMES = ('quoted "name"', "back\\slash", 'both\\"', "data.a", "nested.a", "é", "missing")
TEXTS = (*STRINGS, "ß", "日本語", "日本", "本語", "🦊", "a🦊b", "aaab", "abab", "\\", '"', "a\nb", "\x00")
MOMENTS = tuple(parse_timestamp(text) for text in TIMESTAMPS)
NUMBERS = SMALL_INTEGERS + INTEGERS_64 + REALS


def pattern(attribute: str, text: str) -> Pattern:
    parts, kinds = parse_pattern(text, None)
    return Pattern(attribute, *shape_of(parts, kinds), parts, kinds)


def random_need(rng: random.Random) -> Constraint:
    attribute = rng.choice(NAMES + ODD_NAMES)
    match rng.randrange(9):
        case 0:
            values = rng.choices(NUMBERS, k=rng.randrange(1, 30))
            return OneOf(attribute, Domain.NUMBER, tuple(values))
        case 1:
            return OneOf(attribute, Domain.STRING, tuple(rng.choices(TEXTS, k=rng.randrange(1, 30))))
        case 2:
            domain, values_of = rng.choice(((Domain.TIMESTAMP, MOMENTS), (Domain.BOOLEAN, (False, True))))
            return OneOf(attribute, domain, tuple(rng.choices(values_of, k=rng.randrange(1, 3))))
        case 3:
            domain, bounds = rng.choice(((Domain.NUMBER, NUMBERS), (Domain.STRING, TEXTS)))
            low, high = rng.choice((None, *bounds)), rng.choice((None, *bounds))
            return Between(attribute, domain, low, rng.random() < 0.5, high, rng.random() < 0.5)
        case 4:
            return Contains(attribute, rng.choice(TEXTS))
        case 5:
            return Presence(attribute, True)
        case 6:
            return Computed(Comparison(rng.choice(tuple(Operator)), _operand(rng, 2), _operand(rng, 1)))
        case 7:
            text = rng.choice((*TEXTS, "")).replace("%", "").replace("_", "")
            # The language has no such shape of an empty text, but its meaning is clear.
            shape, parts = rng.choice(
                (
                    (PatternShape.PREFIX, (text, "%")),
                    (PatternShape.SUFFIX, ("%", text)),
                    (PatternShape.SUBSTRING, ("%", text, "%")),
                )
            )
            return Pattern(attribute, shape, text, parts, tuple(part == "%" for part in parts))
        case _:
            pieces = rng.choices(("%", "_", *TEXTS), (20, 10, *[1] * len(TEXTS)), k=rng.randrange(1, 5))
            return pattern(attribute, "".join(pieces) + rng.choice("%_"))


def _operand(rng: random.Random, depth: int) -> Operand:
    roll = rng.random()
    if depth and roll < 0.5:
        return Arithmetic(rng.choice("+-*/%"), _operand(rng, depth - 1), _operand(rng, depth - 1))
    if roll < 0.8:
        return Attribute(rng.choice((*NAMES, "a", "b", "c", "missing")))
    return Literal(rng.choice((*NUMBERS, "ab", True, MOMENTS[0])))


def random_events(rng: random.Random, count: int) -> Iterator[Event]:
    for _ in range(count):
        event = random_event(rng)
        data = dict(event.data)
        for name in rng.sample(NAMES + ODD_NAMES[:-1], 3):
            text = "".join(rng.choices(TEXTS, k=rng.randrange(4)))
            lists = tuple(rng.choices(TEXTS, k=rng.randrange(5)))
            data[name] = rng.choice((text, lists, rng.choice(NUMBERS), rng.choice(MOMENTS)))
        yield Event(event.context, data, event.payload)


def distinct(constraints: Sequence[Constraint]) -> dict[str, Constraint]:
    """Constraints by their text, as in a pool."""
    return {constraint_to_text(constraint): constraint for constraint in constraints}


def evaluate(needs: SegmentNeeds, events: Sequence[Event]) -> list[list[int]]:
    held = needs.evaluate(BatchColumns(concat(encode(events, 0))))
    found = held.needs.tolist()
    return [sorted(found[begin:end]) for begin, end in zip(held.start, held.start[1:], strict=False)]


def expected(constraints: Sequence[Constraint], events: Sequence[Event]) -> list[list[int]]:
    return [
        [place for place, constraint in enumerate(constraints) if satisfies(constraint, event) is True]
        for event in events
    ]


def check(constraints: Sequence[Constraint], values: Sequence[Value]) -> None:
    """Compare what the needs say about events with `x` of each value, in one batch, with the reference."""
    events = [Event({}, {"x": value}, b"{}") for value in values]
    pool = distinct(constraints)
    assert evaluate(SegmentNeeds(tuple(pool)), events) == expected(list(pool.values()), events)


@pytest.mark.parametrize("seed", range(12))
def test_needs_equal_the_reference_in_batch_after_batch(seed: int) -> None:
    rng = random.Random(seed)
    pool = distinct([random_need(rng) for _ in range(rng.choice((3, 40, 200)))])
    constraints = list(pool.values())
    # From a memory that never forgets, to one that forgets after every batch.
    needs = SegmentNeeds(tuple(pool), rng.choice((0, 500, 1_000_000)))
    assert needs.count == len(pool)
    for _ in range(6):
        events = list(random_events(rng, rng.choice((1, 3, 20, 60))))
        assert evaluate(needs, events) == expected(constraints, events)


def test_parts_of_a_batch_are_evaluated_as_the_whole() -> None:
    rng = random.Random(1)
    pool = distinct([random_need(rng) for _ in range(150)])
    events = list(random_events(rng, 50))
    batch = concat(encode(events, 0))
    wanted = expected(list(pool.values()), events)
    needs = SegmentNeeds(tuple(pool))
    for begin, rows in ((0, 50), (7, 3), (49, 1), (13, 30), (20, 0)):
        held = needs.evaluate(BatchColumns(batch.slice(begin, rows)))
        assert len(held.start) == rows + 1
        for row in range(rows):
            found = held.needs[held.start[row] : held.start[row + 1]].tolist()
            assert sorted(found) == wanted[begin + row]


def test_no_needs_and_no_rows_give_nothing() -> None:
    assert evaluate(SegmentNeeds(()), [Event({}, {"x": 1}, b"{}")]) == [[]]
    assert evaluate(SegmentNeeds((constraint_to_text(Presence("x", True)),)), []) == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("needs", [1, 20, 600])
def test_patterns_are_found_in_short_and_long_values(seed: int, needs: int) -> None:
    # Few needs in long values are searched for; many in short ones are looked up.
    rng = random.Random(seed)

    def text(longest: int) -> str:
        return "".join(rng.choices("abé", k=rng.randrange(1, longest)))

    shapes = ("{}%", "%{}", "%{}%", "%{}_", "_{}%{}%", "%{}%{}%{}")
    patterns = [pattern("x", rng.choice(shapes).format(text(9), text(3), text(2))) for _ in range(needs)]
    check(patterns, ["", *(text(longest) for longest in (2, 4, 10, 30, 200, 3000) for _ in range(5))])


def test_values_of_different_domains_are_kept_apart() -> None:
    sets: list[Constraint] = [
        OneOf("x", Domain.NUMBER, (1, 5)),
        OneOf("x", Domain.NUMBER, (1.0, 0)),
        OneOf("x", Domain.NUMBER, (2**53 + 1,)),
        OneOf("x", Domain.BOOLEAN, (True,)),
        OneOf("x", Domain.STRING, ("1",)),
        OneOf("x", Domain.TIMESTAMP, (Timestamp(1),)),
        Contains("x", "1"),
    ]
    numbers = [1, 1.0, 0, 0.0, -0.0, 2**53, 2**53 + 1, 2.0**53]
    check(sets, [*numbers, True, False, "1", "", Timestamp(1), Timestamp(0), ("1",), ("1", "1"), ()])


@pytest.mark.parametrize("operator", Operator)
@pytest.mark.parametrize("sign", "+-*/%")
def test_arithmetic_on_columns_is_exact(operator: Operator, sign: str) -> None:
    rng = random.Random(f"{operator} {sign}")
    scales: tuple[tuple[int | float, ...], ...] = (SMALL_INTEGERS, INTEGERS_64, REALS, NUMBERS)
    for literals in scales:
        needs = [
            Computed(Comparison(operator, Arithmetic(sign, Attribute("a"), right), Attribute("b")))
            for right in (Attribute("b"), Attribute("a"), Literal(rng.choice(literals)))
        ]
        pool = distinct([*needs, Computed(Comparison(operator, Attribute("a"), Attribute("b")))])
        for left in scales:
            for right_values in scales:
                data = [{"a": rng.choice(left), "b": rng.choice(right_values)} for _ in range(40)]
                events = [Event({}, each, b"{}") for each in data]
                assert evaluate(SegmentNeeds(tuple(pool)), events) == expected(list(pool.values()), events)


def test_a_value_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Value] = []
    meets = TextLookup.meets

    def recorded(self: TextLookup, value: Value) -> list[int]:
        asked.append(value)
        return meets(self, value)

    monkeypatch.setattr(TextLookup, "meets", recorded)
    needs = SegmentNeeds((constraint_to_text(pattern("x", "%b")),))
    for _ in range(3):
        events = [
            Event({}, {"x": text, "y": f"{text}{row}"}, b"{}") for row in range(4) for text in ("ab", "a")
        ]
        assert evaluate(needs, events) == [[0], []] * 4
    assert asked == ["ab", "a"]


def test_no_more_is_remembered_than_the_bound_allows() -> None:
    needs = SegmentNeeds((constraint_to_text(pattern("x", "%9")),), most_remembered=1000)
    most = 0
    for batch in range(20):
        events = [Event({}, {"x": f"{batch} {row}"}, b"{}") for row in range(20)]
        assert evaluate(needs, events) == [[0] if row % 10 == 9 else [] for row in range(20)]
        most = max(most, needs._held.size)
    assert 0 < most <= 1000


@pytest.mark.parametrize("rows", [1, 32, 33, 500])
def test_columns_with_gaps_are_evaluated_like_the_reference_at_any_length(rows: int) -> None:
    rng = random.Random(rows)
    pool = distinct([random_need(rng) for _ in range(200)])
    needs = SegmentNeeds(tuple(pool))
    for _ in range(3):
        events = list(random_events(rng, rows))
        assert evaluate(needs, events) == expected(list(pool.values()), events)


def test_values_that_collide_are_found_all_the_same() -> None:
    # All of them want the same slot, and there is no room for that many near it.
    integers = [n for n in range(6_000) if need_cache._slot_of(n) & 0x7F == 0]
    assert 2 * need_cache._PROBES < len(integers) < 64  # of the 128 slots that so many get
    needs = SegmentNeeds((constraint_to_text(OneOf("x", Domain.NUMBER, tuple(integers[::2]))),))
    events = [Event({}, {"x": n}, b"{}") for n in integers]
    for _ in range(5):
        assert evaluate(needs, events) == [[0] if place % 2 == 0 else [] for place in range(len(integers))]


def test_strings_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    real = need_cache._table

    def with_one_hash(known: "dict[bytes | int, Shorts]") -> "need_cache._Table":
        """Every key is that of the first text, as if all texts had its hash."""
        table = real(known)
        table.keys[:] = table.keys[:1]
        return table

    monkeypatch.setattr(need_cache, "_table", with_one_hash)
    needs = SegmentNeeds((constraint_to_text(pattern("x", "%b")),))
    events = [Event({}, {"x": text}, b"{}") for text in ("ab", "ba", "abb", "aba")]
    for _ in range(5):
        assert evaluate(needs, events) == [[0], [], [0], []]


def test_threads_may_share_needs() -> None:
    rng = random.Random(5)
    pool = distinct([random_need(rng) for _ in range(100)])
    needs = SegmentNeeds(tuple(pool), 2000)
    batches = [list(random_events(rng, 20)) for _ in range(8)]
    wanted = [expected(list(pool.values()), events) for events in batches]
    found: list[list[list[list[int]]]] = []

    def work() -> None:
        found.append([evaluate(needs, events) for events in batches * 3])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted * 3] * 4


@pytest.mark.parametrize(
    "negated",
    [
        OneOf("x", Domain.NUMBER, (1,), negated=True),
        Pattern("x", PatternShape.SUFFIX, "b", ("%", "b"), (True, False), negated=True),
        Contains("x", "a", negated=True),
        Presence("x", False),
    ],
)
def test_a_negated_need_is_refused(negated: Constraint) -> None:
    needs = SegmentNeeds((constraint_to_text(negated),))
    with pytest.raises(ValueError, match="must not"):
        evaluate(needs, [Event({}, {"x": 1}, b"{}")])
