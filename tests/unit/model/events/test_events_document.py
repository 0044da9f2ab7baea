"""The examples of docs/events.md, run as they stand there."""

import itertools
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from culver.config import EventSettings
from culver.errors import CulverError
from culver.model.event import Event
from culver.model.formats import MEDIA_TYPES, decode_body, parse_event
from culver.model.language.parser import parse
from culver.model.language.predicate import evaluate
from culver.model.timestamps import format_timestamp
from culver.model.values import KIND_OF_TYPE, Timestamp, Value

DOCUMENT = Path(__file__).parents[4].joinpath("docs", "events.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
LISTED = [(event[1], listing[1]) for event, listing in itertools.pairwise(BLOCKS) if listing[0] == "text"]


def rows(heading: str) -> list[tuple[str, ...]]:
    """The cells of the table below a heading, without their quotes."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [tuple(cell.strip().strip("`") for cell in line.strip("|").split(" | ")) for line in lines]


def written(value: Value) -> Any:
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    return list(value) if isinstance(value, tuple) else value


def all_names(event: Event) -> set[str]:
    return {*event.context, *event.data}


def test_the_page_has_its_examples() -> None:
    assert len(LISTED) == 2
    assert len(rows("Which attribute a name means")) >= 15
    assert len(rows("Refused events")) >= 13


@pytest.mark.parametrize(("document", "listing"), LISTED)
def test_an_event_has_the_attributes_that_are_listed(document: str, listing: str) -> None:
    event = parse_event(document.encode())
    listed = {}
    for line in listing.splitlines():
        name, kind, value = re.split(r"  +", line)
        found = event.value(name)
        assert found is not None, name
        assert KIND_OF_TYPE[type(found)].name.lower() == {"list of strings": "strings"}.get(kind, kind)
        assert written(found) == json.loads(value)
        listed[name] = found
    assert all_names(event) <= {name.removeprefix("data.") for name in listed}


@pytest.mark.parametrize(("event", "filter_text", "result"), rows("Which attribute a name means"))
def test_a_name_means_what_the_table_says(event: str, filter_text: str, result: str) -> None:
    expected = {"true": True, "false": False, "unknown": None}[result]
    assert evaluate(parse(filter_text).condition, parse_event(event.encode())) is expected


@pytest.mark.parametrize(("event", "attribute", "_why"), rows("Refused events"))
def test_what_the_page_calls_refused_is_refused(event: str, attribute: str, _why: str) -> None:
    with pytest.raises(CulverError) as caught:
        parse_event(event.encode())
    assert caught.value.field == attribute


def test_the_binary_example_becomes_the_structured_one() -> None:
    place = next(index for index, block in enumerate(BLOCKS) if block[0] == "http")
    head, body = BLOCKS[place][1].split("\n\n", 1)
    headers = {name.lower(): value for name, value in (line.split(": ") for line in head.splitlines()[1:])}
    (event,) = decode_body(headers["content-type"], headers, body.encode(), EventSettings())
    assert json.loads(event.payload) == json.loads(BLOCKS[place + 1][1])


def test_the_page_names_every_content_type() -> None:
    for media_type in MEDIA_TYPES:
        assert f"`{media_type}`" in DOCUMENT


def test_the_limits_are_the_defaults() -> None:
    documented = {name: int(value) for name, value, _ in rows("Limits")}
    assert documented == {field.name: field.default for field in fields(EventSettings)}
