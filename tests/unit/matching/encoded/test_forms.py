"""Categories: their hashes never change, and the kernel gives those of the slow way."""

import math
import random

import pytest
from hypothesis import given, settings, strategies as st

from culver.matching.encoded.bloom_vectors import bit_places
from culver.matching.encoded.event_vectors import EventEncoder
from culver.matching.encoded.forms import (
    AFFIX_LEVELS,
    CELL_LEVELS,
    DOMAINS_OF_KIND,
    HIGHEST_THRESHOLD,
    Category,
    CategoryForm,
    categories_of_event,
    coarsened,
    existence,
    hash_bytes,
    hash_category,
    hash_integer,
    is_coarser,
    threshold,
)
from culver.matching.index.compile.key_lines import KeyLine
from culver.matching.index.keys.batch_columns import BatchColumns
from culver.matching.index.keys.portable_keys import event_hashes
from culver.model.columns import encode
from culver.model.event import Event
from culver.model.values import Value
from support.encoding import event_vector
from support.events import NAMES, events

LEVELS = {
    "cell": CELL_LEVELS,
    "least": range(-HIGHEST_THRESHOLD, HIGHEST_THRESHOLD + 1),
    "most": range(-HIGHEST_THRESHOLD, HIGHEST_THRESHOLD + 1),
    "prefix": AFFIX_LEVELS,
    "suffix": AFFIX_LEVELS,
}


def every_form(attribute: str) -> list[CategoryForm]:
    return [
        CategoryForm(kind, domain, attribute, level)
        for kind, domains in DOMAINS_OF_KIND.items()
        for domain in domains
        for level in LEVELS.get(kind, (0,))
    ]


def some_forms(seed: int) -> list[CategoryForm]:
    rng = random.Random(seed)
    names = (*NAMES, *(f"data.{name}" for name in NAMES), "type", "x", "nested.a")
    return rng.sample([form for name in names for form in every_form(name)], 150)


def test_hashes_are_the_same_in_every_version() -> None:
    assert hash_integer(0) == 0xE220A8397B1DCDAF  # the first number of SplitMix64 with the seed 0
    assert hash_bytes(b"") == 0
    assert hash_bytes(b"symbol ABC") == 0xA13976AADC90D1DC
    category = Category(CategoryForm("equal", "string", "symbol"), b"ABC")
    assert hash_category(category) == 0x435747F75E610AA1
    assert bit_places(hash_category(category), 256, 3) == [161, 152, 143]
    # Another program for the same hash.
    texts = [b"", b"a", b"12345678", b"123456789", "é".encode() * 20]
    column = encode([Event({}, {"x": text.decode()}, b"{}") for text in texts], 0)[0]
    found = event_hashes(BatchColumns(column), ("x", KeyLine.STRINGS))
    assert found is not None
    assert found[0].tolist() == [hash_bytes(text) for text in texts]


def test_places_for_fewer_bits_are_those_for_more_bits_folded() -> None:
    for hashed in map(hash_integer, range(50)):
        many = bit_places(hashed, 4096, 6)
        assert [place % 64 for place in many] == bit_places(hashed, 64, 6)
        assert len(set(many)) == 6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(events(), min_size=1, max_size=4), st.integers(0, 40))
def test_the_kernel_gives_the_vectors_of_the_slow_way(drawn: list[Event], seed: int) -> None:
    forms = some_forms(seed)
    encoder = EventEncoder(forms)
    bits, hashes = (4096, 3) if seed % 2 else (512, 6)
    first = 0
    for batch in encode(drawn, 0):
        words = encoder.encode(BatchColumns(batch), bits, hashes).reshape(batch.num_rows, bits // 64)
        for row in range(batch.num_rows):
            expected = event_vector(drawn[first + row], forms, bits, hashes)
            assert int.from_bytes(words[row].tobytes(), "little") == expected
        first += batch.num_rows


def test_the_kernel_agrees_on_numbers_at_the_edges_of_cells_and_thresholds() -> None:
    signs = (-1, 1)
    powers = [
        2.0**n for n in (-1074, -1060, -1022, -21, -20, -19, 0, 1, 20, 41, 42, 53, 61, 62, 63, 82, 1023)
    ]
    reals = [
        sign * math.nextafter(power, way) for power in powers for way in (0, power, 1e308) for sign in signs
    ]
    whole = [
        sign * (2**n + step) for n in (0, 1, 20, 41, 42, 52, 53, 62) for step in (-1, 0, 1) for sign in signs
    ]
    forms = every_form("x")
    encoder = EventEncoder(forms)
    drawn = [Event({}, {"x": value}, b"{}") for value in (*reals, *whole, 2**63 - 1, -(2**63), 0.0, -0.0)]
    (batch,) = encode(drawn, 0)
    words = encoder.encode(BatchColumns(batch), 4096, 3).reshape(len(drawn), 64)
    for event, row in zip(drawn, words, strict=True):
        assert int.from_bytes(row.tobytes(), "little") == event_vector(event, forms, 4096, 3), event.data


@pytest.mark.parametrize(
    "values",
    [
        (5, 5.0),
        (0, 0.0, -0.0),
        (2**53, 2.0**53),
        (-(2**63), -(2.0**63)),
    ],
)
def test_equal_numbers_have_the_same_categories_of_every_form(values: tuple[Value, ...]) -> None:
    forms = every_form("x")
    found = [set(categories_of_event(Event({}, {"x": value}, b"{}"), forms)) for value in values]
    assert all(each == found[0] for each in found)
    encoder = EventEncoder(forms)
    vectors = [
        encoder.encode(BatchColumns(batch), 4096, 3).tobytes()
        for value in values
        for batch in encode([Event({}, {"x": value}, b"{}")], 0)
    ]
    assert len(set(vectors)) == 1


def test_integers_beyond_2_to_53_have_categories_of_their_own() -> None:
    form = CategoryForm("equal", "number", "x")
    values = (2**53, 2**53 + 1, 2.0**63, -(2**63))
    found = [hash_category(*categories_of_event(Event({}, {"x": value}, b"{}"), [form])) for value in values]
    assert len(set(found)) == len(values)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.text())
)
def test_a_coarser_form_holds_the_finer_one(value: Value) -> None:
    event = Event({}, {"x": value}, b"{}")
    finest = list(categories_of_event(event, every_form("x")))
    for fine in finest:
        for coarse in finest:
            if fine.form[:3] == coarse.form[:3] and is_coarser(coarse.form, fine.form):
                assert coarsened(fine, coarse.form) == coarse
        assert coarsened(fine, existence(fine.form)) in finest


def test_thresholds_are_powers_of_two_of_both_signs_in_order() -> None:
    assert [threshold(level) for level in (-25, -1, 0, 1, 25)] == [-16.0, -(2.0**-20), 0.0, 2.0**-20, 16.0]
    every = [threshold(level) for level in LEVELS["least"]]
    assert every == sorted(set(every))
    assert math.isfinite(every[-1])


def test_a_form_is_read_from_its_text() -> None:
    forms = every_form("a:b,c=d é%")
    assert [CategoryForm.parse(form.text) for form in forms] == forms


@pytest.mark.parametrize(
    "text",
    ["", "exists", "exists:number", "magic:number:x", "exists:numbers:x", "cell:number:x:1", "cell:string:x:2",
     "cell:number:x:+2", "cell:number:x:02", "prefix:string:x:3", "least:number:x:81", "cell:number:x:",
     "cell:number:2"],
)  # fmt: skip
def test_what_is_no_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        CategoryForm.parse(text)
