"""`culver subs load`, `sets` and `remove-set`: sets of subscriptions, which share a filter with `?` in it."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from culver.cli.client_calls import run_async
from culver.cli.failures import about_filter
from culver.cli.listing import list_all
from culver.cli.options import json_option, url_option
from culver.client import Client, Mailbox, Rows, as_table, connect
from culver.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa


@click.command("load")
@click.argument("name")
@click.argument("filter_text", metavar="FILTER")
@click.argument("file", metavar="FILE")
@click.option(
    "--expires-in",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Remove them after that time.",
)
@click.option("--max-count", type=click.IntRange(1), metavar="N", help="Most events that each mailbox keeps.")
@click.option(
    "--first", type=click.IntRange(0), metavar="N", help="Refuse unless the first row gets this number."
)
@url_option
def load(
    name: str,
    filter_text: str,
    file: str,
    expires_in: float | None,
    max_count: int | None,
    first: int | None,
    url: str,
) -> None:
    """Add one durable subscription for each row of a file.

    The filter has ? in place of values, and each row fills them in. FILE is CSV (with a line of names),
    Parquet, or NDJSON with an array of values a line; - reads NDJSON from standard input. Row 0 becomes
    subscription NAME.0, and so on. If the set exists, the rows are added to it.

    \b
    Examples:
      culver subs load quotes 'symbol = ? AND close >= ?' rows.csv
      echo '["ACME", 20.5]' | culver subs load quotes 'symbol = ? AND close >= ?' -
    """
    table = _read(file)
    mailbox = None if max_count is None else Mailbox(max_count=max_count)

    async def work() -> Rows:
        async with connect(url, timeout_seconds=120.0) as client:
            with click.progressbar(length=table.num_rows, label="rows", file=sys.stderr) as bar:
                return await client.subscribe_many(
                    filter_text,
                    table,
                    name=name,
                    first=first,
                    expires_in_seconds=expires_in,
                    mailbox=mailbox,
                    progress=lambda done: bar.update(done - bar.pos),
                )

    with about_filter(filter_text):
        rows = run_async(work())
    last = rows.count - 1
    click.echo(
        f"{rows.count} subscriptions, {rows.id(0)} to {rows.id(last)}, take effect from position {rows.since}"
    )


@click.command("sets")
@json_option
@url_option
def list_sets(as_json: bool, url: str) -> None:
    """List the sets of a site, by name.

    \b
    Example:
      culver subs sets
    """

    list_all(
        url,
        Client.sets,
        ("SET", "COUNT"),
        lambda each: (each.set, each.count, "; ".join(each.filters)),
        "there are no sets",
        as_json=as_json,
    )


@click.command("remove-set")
@click.argument("name")
@url_option
def remove_set(name: str, url: str) -> None:
    """Remove a set, with all its subscriptions and mailboxes.

    \b
    Example:
      culver subs remove-set quotes
    """

    async def work() -> int:
        async with connect(url, timeout_seconds=120.0) as client:
            return await client.delete_set(name)

    count = run_async(work())
    click.echo(f"{name} is removed: {count} subscriptions")


COMMANDS = (load, list_sets, remove_set)


def _read(file: str) -> "pa.Table":
    """The rows of a file, or of standard input. Raises InvalidRequest."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if file == "-":
            return _read_lines(sys.stdin.buffer.read())
        path = Path(file)
        if path.suffix == ".csv":
            return csv.read_csv(path)
        if path.suffix == ".parquet":
            return parquet.read_table(path)
        return _read_lines(path.read_bytes())
    except OSError as exc:
        raise InvalidRequest(f"cannot read {file}: {exc.strerror or exc}", field="file") from exc
    except pa.ArrowInvalid as exc:
        raise InvalidRequest(f"cannot read {file}: {exc}", field="file") from exc


def _read_lines(data: bytes) -> "pa.Table":
    rows: list[list[Any]] = []
    decoder = msgspec.json.Decoder(list[Any])
    for number, line in enumerate(io.BytesIO(data), 1):
        if line.strip():
            try:
                rows.append(decoder.decode(line))
            except msgspec.DecodeError as exc:
                raise InvalidRequest(f"line {number} is not an array of values: {exc}", field="file") from exc
    return as_table(rows)
