"""Lists what a site has: a table for people, or one JSON object a line."""

import json
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import click
import msgspec

from culver.cli.client_calls import run_async
from culver.client import Client, connect

T = TypeVar("T")


def list_all(
    url: str,
    fetch: Callable[[Client], AsyncIterator[T]],
    heads: tuple[str, ...],
    row: Callable[[T], tuple[str | int, ...]],
    nothing: str,
    *,
    as_json: bool,
) -> None:
    """Print one line for each thing that `fetch` yields. `row` gives its cells: a name, a number, perhaps more, and a
    filter. `heads` are the headings of all but the filter. Where there is nothing, standard error says `nothing`."""

    async def work() -> None:
        async with connect(url) as client:
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

    run_async(work())


def _line(name: object, number: object, *more: object) -> str:
    *cells, text = more
    return f"{name:<24} {number:>9}  " + "".join(f"{cell:<10} " for cell in cells) + str(text)


def json_line(value: object) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


def one_line(text: str) -> str:
    return " ".join(text.split())
