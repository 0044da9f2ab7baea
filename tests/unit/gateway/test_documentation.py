"""docs/api.md says what the gateway does: its examples run, and nothing is left out."""

import json
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import get_args

import msgspec
from starlette.routing import Route

from culver.config import known_settings
from culver.control import SiteObservation, SlicesView
from culver.gateway.app import create_app
from culver.gateway.problems import KINDS, STATUS_OF_FIELD
from culver.messages import (
    AcceptedEvents,
    AcceptedRows,
    Acknowledged,
    Clauses,
    ClientMessage,
    EventItem,
    FilterTest,
    FilterWarning,
    GapItem,
    GroupAcknowledged,
    GroupGapItem,
    GroupItems,
    Items,
    NewRows,
    NewSubscription,
    OverlayStatus,
    Problem,
    PublishedMessage,
    Refusal,
    ServerMessage,
    SiteStatus,
    Subscription,
)
from culver.roles import ChannelsStatus
from support.fake_site import FakeSite
from support.gateway import memory_client, run

TEXT = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
COMMANDS = [command for command in re.findall(r"```sh\n(.*?)```", TEXT, re.S) if command.startswith("curl ")]


def parse_command(command: str) -> tuple[str, str, dict[str, str], str | None]:
    """Method, path, headers and body of a curl command."""
    quoted = re.sub(
        r"\$'((?:[^'\\]|\\.)*)'", lambda found: shlex.quote(found[1].replace("\\n", "\n")), command
    )
    words = shlex.split(quoted)[1:]
    method, path, body = None, "", None
    headers: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word in ("-d", "--data-binary"):
            body = words.pop(0)
        elif word != "-N":
            path = word.removeprefix("$SITE")
    return method or ("GET" if body is None else "POST"), path, headers, body


def test_the_examples_run_in_their_order() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            for command in COMMANDS:
                if " -N " in command:
                    continue  # a stream without an end
                method, path, headers, body = parse_command(command)
                answer = await client.request(method, path, headers=headers, content=body)
                assert answer.is_success, (command, answer.text)

    assert len(COMMANDS) > 12
    run(scenario())


def test_every_operation_has_an_example_or_a_row() -> None:
    async def scenario() -> None:
        examples = {parse_command(command)[:2] for command in COMMANDS}
        for route in create_app(FakeSite()).routes:
            if not isinstance(route, Route):
                continue
            for method in route.methods or ():
                shown = any(
                    method == used and route.path_regex.match(path.partition("?")[0])
                    for used, path in examples
                )
                assert shown or method == "HEAD" or f"`{method} {route.path}`" in TEXT, (method, route.path)

    run(scenario())


def test_every_code_and_its_status_is_in_the_table() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \| (\d{3}) \|", TEXT, re.M))
    wanted = {(code, str(kind.status)) for code, kind in KINDS.items()}
    wanted |= {("invalid_request", str(status)) for status in STATUS_OF_FIELD.values()}
    assert rows == wanted


def test_the_settings_it_names_exist() -> None:
    named = set(re.findall(r"`((?:gateway|events|filters|registry|delivery)\.\w+)`", TEXT))
    assert named <= set(known_settings())
    assert {name for name in known_settings() if name.startswith("gateway.")} - named == {"gateway.port"}


def section(title: str) -> str:
    """The text of a chapter, or of a part of one."""
    start = re.search(rf"^(#+) {title}$", TEXT, re.M)
    assert start is not None
    rest = TEXT[start.end() :]
    end = re.search(rf"^#{{2,{len(start[1])}}} ", rest, re.M)
    return rest[: end.start()] if end else rest


def members_in(table: str) -> set[str]:
    """The names in the first column of the rows that a table has for members."""
    header = re.search(r"^\| member \|.*\n\|---\|---\|\n((?:\|.*\n)+)", table, re.M)
    assert header is not None
    return {name for row in header[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_tables_of_members_have_those_of_the_messages() -> None:
    assert members_in(section("Subscribe")) == set(NewSubscription.__struct_fields__)
    assert members_in(section("Sets")) == set(NewRows.__struct_fields__)


def test_the_messages_of_the_websocket_are_those_that_are_read_and_sent() -> None:
    exchanges, unasked = section("WebSocket").split("The site also sends")
    rows = re.findall(r'^\| `({"op".*})` \| `({"op": .*?})`', exchanges.replace("[{...}, ...]", "[{}]"), re.M)
    requests = {type(msgspec.json.decode(sent, type=ClientMessage)) for sent, _ in rows}
    assert requests == set(get_args(ClientMessage))
    answers = {type(msgspec.json.decode(got, type=ServerMessage)).__name__ for _, got in rows}
    names = {kind.__struct_config__.tag: kind.__name__ for kind in get_args(ServerMessage)}
    answers |= {names[operation] for operation in re.findall(r'^\| `{"op": "(\w+)"', unasked, re.M)}
    assert answers == set(names.values())


def test_the_error_that_is_shown_is_the_one_that_its_filter_gets() -> None:
    shown = re.search(r"The filter `(.+?)` gets this one:\n\n```json\n(.*?)```", section("Errors"), re.S)
    assert shown is not None

    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            answer = await client.post("/v1/subscriptions", json={"filter": shown[1]})
            assert answer.json() == json.loads(shown[2])

    run(scenario())


ANSWERS = (
    AcceptedEvents, AcceptedRows, Acknowledged, ChannelsStatus, Clauses, EventItem, FilterTest, FilterWarning,
    GapItem, GroupAcknowledged, GroupGapItem, GroupItems, Items, OverlayStatus, Problem, PublishedMessage,
    Refusal, SiteObservation, SiteStatus, SlicesView, Subscription,
)  # fmt: skip


def test_every_answer_that_is_shown_is_one_that_the_gateway_gives() -> None:
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.S)]
    found = set()
    for block in blocks:
        fitting = []
        for kind in ANSWERS:
            with suppress(msgspec.ValidationError):
                msgspec.convert(block, kind)
                names = {field.encode_name for field in msgspec.inspect.type_info(kind).fields}  # type: ignore[attr-defined]
                if kind in (Problem, Refusal) or block.keys() - {"type"} <= names:
                    fitting.append(kind)
        assert fitting, block
        found.update(fitting)
    assert found == set(ANSWERS)
