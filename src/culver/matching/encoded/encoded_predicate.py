"""What one site advertises: its aggregated, encoded predicates, and the text that a registry stores as a filter.

    encoded 1 cells 2048 3 price=xn.l25,symbol=es 2 QwkDE...
            |   |     |  |   forms, by attribute  |   the vectors
       version  |   bits hashes                number of vectors
             encoding

A form is written as the letter of its kind, that of its domain where the kind leaves a choice, and its level, if it
has one: `price=xn.l25` is exists:number:price and least:number:price:25. Attributes are percent-encoded.

The vectors are one after another a string of bits, mostly zeros. The text has the distance of each bit that is set
from the one before it, the first from place -1: seven bits to a byte, the lowest first, with the eighth bit set where
another byte follows. A distance takes one or two bytes. The bytes are in base64 without padding; where there are no
vectors, or one that has no bit, the last part is "-".
"""

import base64
import binascii
from collections.abc import Iterable
from urllib.parse import quote, unquote

import msgspec
import numpy as np
from numpy.typing import NDArray

from culver.errors import InvalidFilter
from culver.matching.encoded.bloom_vectors import (
    BITS,
    FEWEST_BITS,
    HASHES,
    MOST_HASHES,
    bytes_of_bits,
    set_bits,
)
from culver.matching.encoded.constraint_options import CELLS, ENCODINGS
from culver.matching.encoded.forms import (
    CELL,
    DOMAINS_OF_KIND,
    EQUAL,
    EXISTS,
    HOLDS,
    LEAST,
    MOST,
    PREFIX,
    SUFFIX,
    CategoryForm,
)
from culver.model import ENCODED

MOST_VECTORS = 1 << 14
MOST_FORMS = 1 << 12
MOST_CHARACTERS = 1 << 22
_LONGEST_NAME = 1024  # characters
_START = f"{ENCODED} 1"
_NO_BITS = "-"
_PARTS = 8
_LETTERS = {EXISTS: "x", EQUAL: "e", HOLDS: "h", CELL: "c", LEAST: "l", MOST: "m", PREFIX: "p", SUFFIX: "s"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}
_DOMAIN_LETTERS = {domain: domain[0] for domain in DOMAINS_OF_KIND[EXISTS]}
_DOMAINS = {letter: domain for domain, letter in _DOMAIN_LETTERS.items()}


class EncodedPredicate(msgspec.Struct, frozen=True):
    """The content of one advertisement. `forms` and `vectors` are sorted and distinct; each vector has `bits` / 8
    bytes. An event matches where its categories of these forms (see `forms`) have all bits of some vector. No vector
    of a summary covers another, and others are harmless: nothing relies on it."""

    encoding: str
    bits: int
    hashes: int
    forms: tuple[str, ...]
    vectors: tuple[bytes, ...]

    @property
    def text(self) -> str:
        """One line of printable ASCII, the same for equal predicates."""
        forms = _written_forms(self.forms)
        parameters = f"{self.encoding} {self.bits} {self.hashes}"
        return f"{_START} {parameters} {forms} {len(self.vectors)} {_pack(self.vectors)}"

    @property
    def matches_everything(self) -> bool:
        return bool(self.vectors) and not any(self.vectors[0])

    @classmethod
    def parse(cls, text: str) -> "EncodedPredicate":
        """Read a text, from whomever. Raises InvalidFilter for anything but the one text of a valid predicate."""
        if len(text) > MOST_CHARACTERS:
            raise _refusal(f"has {len(text)} characters, more than {MOST_CHARACTERS}")
        parts = text.split(" ")
        if len(parts) != _PARTS or " ".join(parts[:2]) != _START:
            raise _refusal(f"does not begin with {_START!r} and have {_PARTS} parts")
        _, _, encoding, bits, hashes, forms, count, packed = parts
        try:
            names = _read_forms(forms)
            size = int(bits)
            number = int(count)
            if number > MOST_VECTORS or size not in BITS:
                raise ValueError("too many vectors, or no number of bits")
            made = cls(encoding, size, int(hashes), names, _unpack(packed, number, size))
        except (ValueError, binascii.Error) as exc:
            raise _refusal(f"is damaged: {str(exc)[:100]}") from None
        made.check()
        if made.text != text:
            raise _refusal("is not written as it must be")
        return made

    def check(self) -> None:
        """Raises InvalidFilter unless all members are as they must be."""
        if self.encoding not in ENCODINGS:
            raise _refusal(f"has the unknown encoding {self.encoding[:40]!r}; known: {', '.join(ENCODINGS)}")
        if self.bits not in BITS or not 1 <= self.hashes <= MOST_HASHES:
            raise _refusal(f"has {self.bits} bits and {self.hashes} hashes")
        if len(self.forms) > MOST_FORMS or len(self.vectors) > MOST_VECTORS:
            raise _refusal(f"has {len(self.forms)} forms and {len(self.vectors)} vectors")
        if any(len(vector) != self.bits // 8 for vector in self.vectors):
            raise _refusal(f"has a vector that is not of {self.bits} bits")
        try:
            longest = max((len(CategoryForm.parse(form).attribute) for form in self.forms), default=0)
        except ValueError:
            longest = _LONGEST_NAME + 1
        if longest > _LONGEST_NAME:
            raise _refusal("has a form that is none")
        if sorted(set(self.forms)) != list(self.forms) or sorted(set(self.vectors)) != list(self.vectors):
            raise _refusal("is not sorted")


NOTHING = EncodedPredicate(CELLS, FEWEST_BITS, HASHES[0], (), ())
"""Matches no event."""


def _written_forms(texts: Iterable[str]) -> str:
    by_attribute: dict[str, list[str]] = {}
    for form in map(CategoryForm.parse, texts):
        letter = _LETTERS[form.kind] + (_DOMAIN_LETTERS[form.domain] if form.has_choice else "")
        by_attribute.setdefault(form.attribute, []).append(
            letter + (str(form.level) if form.has_levels else "")
        )
    written = [f"{quote(name, safe='')}={'.'.join(codes)}" for name, codes in by_attribute.items()]
    return ",".join(sorted(written)) or _NO_BITS


def _read_forms(written: str) -> tuple[str, ...]:
    """Raises ValueError for what is no list of forms. Takes more than one way of writing one."""
    if written == _NO_BITS:
        return ()
    found = []
    for part in written.split(",", MOST_FORMS):
        name, _, codes = part.partition("=")
        attribute = unquote(name, errors="strict")
        found += [_form_of(code, attribute).text for code in codes.split(".", MOST_FORMS)]
    return tuple(sorted(found))


def _form_of(code: str, attribute: str) -> CategoryForm:
    kind = _KINDS.get(code[:1])
    if kind is None:
        raise ValueError(f"no form: {code[:20]!r}")
    form = CategoryForm(kind, DOMAINS_OF_KIND[kind][0], attribute)
    rest = code[1:]
    if form.has_choice:
        form, rest = form._replace(domain=_DOMAINS.get(rest[:1], "")), rest[1:]
    if form.has_levels:
        form, rest = form._replace(level=int(rest)), ""
    return CategoryForm.parse(form.text + rest)


def _refusal(what: str) -> InvalidFilter:
    return InvalidFilter(f"the text of the encoded predicate {what}", field="filter")


def _pack(vectors: tuple[bytes, ...]) -> str:
    distances = np.diff(set_bits(vectors), prepend=-1)
    if not len(distances):
        return _NO_BITS
    pairs = np.empty((len(distances), 2), np.uint8)
    long = distances > 0x7F
    pairs[:, 0] = (distances & 0x7F) | (long << 7)
    pairs[:, 1] = distances >> 7
    kept = np.ones_like(pairs, np.bool_)
    kept[:, 1] = long
    return base64.b64encode(pairs[kept].tobytes()).rstrip(b"=").decode()


def _unpack(packed: str, count: int, bits: int) -> tuple[bytes, ...]:
    size = bits // 8
    raw = bytes(count * size)
    if packed != _NO_BITS:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
        raw = bytes_of_bits(_places(np.frombuffer(data, np.uint8), count * bits), count * size)
    return tuple(raw[place : place + size] for place in range(0, count * size, size))


def _places(data: NDArray[np.uint8], end: int) -> NDArray[np.int64]:
    """The places of the bits from their distances."""
    goes_on = data > 0x7F
    if not len(data) or goes_on[-1] or np.any(goes_on[1:] & goes_on[:-1]):
        raise ValueError("a distance has no end")
    starts = np.flatnonzero(~np.concatenate([[False], goes_on[:-1]]))
    distances = data[starts].astype(np.int64) & 0x7F
    two = np.flatnonzero(goes_on[starts])
    distances[two] |= data[starts[two] + 1].astype(np.int64) << 7
    places = np.cumsum(distances) - 1
    if np.any(distances == 0) or places[-1] >= end:
        raise ValueError("a bit has no place")
    return places
