"""Shared by the commands that call a site: their options, the reading of answers, and lists."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from culver.cli.printable_text import printable
from culver.client import DEFAULT_URL, VARIABLE, Client, connect
from culver.errors import ConnectionFailed

_T = TypeVar("_T")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
url_option = click.option(
    "--url",
    metavar="URL",
    envvar=VARIABLE,
    show_envvar=True,
    default=DEFAULT_URL,
    show_default=True,
    help="Address of the site.",
)
scheme_option = click.option(
    "--scheme",
    metavar="NAME",
    help="The site's filter that matches it: columnar (the default), counting or reference.",
)
wait_option = click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=0.0,
    help="Wait up to that long for a site that is not there yet.",
)


def ask(
    url: str,
    call: Callable[[Client], Awaitable[_T]],
    timeout_seconds: float = 30.0,
    wait_seconds: float = 0.0,
) -> _T:
    """Connect to the site, make the call, and disconnect."""

    async def work() -> _T:
        async with connect(url, timeout_seconds=timeout_seconds, wait_seconds=wait_seconds) as client:
            return await call(client)

    return asyncio.run(work())


def read_answer(answer: dict[str, Any], record: type[_T]) -> _T:
    """The site's answer as a record. Raises ConnectionFailed where the two do not fit."""
    try:
        return msgspec.convert(answer, record)
    except msgspec.ValidationError as exc:
        raise ConnectionFailed(
            f"the site's answer is not understood ({exc}); is it a newer or older version?"
        ) from exc


def list_all(
    url: str,
    fetch: Callable[[Client], AsyncIterator[_T]],
    heads: tuple[str, ...],
    row: Callable[[_T], tuple[str | int, ...]],
    nothing: str,
    *,
    as_json: bool,
) -> None:
    """Print one line for each thing that `fetch` yields. `row` gives its cells: a name, a number, perhaps more, and a
    filter. `heads` are the headings of all but the filter. Where there is nothing, standard error says `nothing`."""

    async def work(client: Client) -> None:
        shown = 0
        async for each in fetch(client):
            if as_json:
                click.echo(json_line(each))
            else:
                if shown == 0:
                    click.echo(_line(*heads, "FILTER"))
                *cells, text = row(each)
                click.echo(_line(*cells, one_line(str(text))))
            shown += 1
        if shown == 0:
            click.echo(nothing, err=True)

    ask(url, work)


def _line(name: object, number: object, *more: object) -> str:
    *cells, text = more
    return f"{name:<24} {number:>9}  " + "".join(f"{cell:<10} " for cell in cells) + str(text)


def json_line(value: object) -> str:
    return printable(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))
