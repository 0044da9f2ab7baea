"""`culver subs`: manages durable subscriptions, and sets of them, which share a filter with `?` in it."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from culver.cli.client_calls import ask, json_line, json_option, list_all, one_line, scheme_option, url_option
from culver.cli.failures import about_filter, warn
from culver.cli.printable_text import printable
from culver.client import Client, Mailbox, Rows, Subscription
from culver.errors import InvalidFilter, InvalidRequest, counted

if TYPE_CHECKING:
    from culver.model.columns import Columns
    from culver.model.language import Prepared

# A set may have millions of members.
_SET_SECONDS = 120.0
_ROWS_SHOWN = 3

_expires_in_option = click.option(
    "--expires-in",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Remove each subscription after that time.",
)
_max_count_option = click.option(
    "--max-count", type=click.IntRange(1), metavar="N", help="Most events that each mailbox keeps."
)


@click.group(no_args_is_help=True)
def subs() -> None:
    """List, show, add and remove durable subscriptions.

    A durable subscription keeps matching events in a mailbox on the site until they are acknowledged,
    whether anybody listens or not. `culver sub --durable NAME` receives them.
    """


@subs.command("list")
@json_option
@url_option
def list_subscriptions(as_json: bool, url: str) -> None:
    """List the durable subscriptions of a site, by name.

    \b
    Example:
      culver subs list
    """
    list_all(
        url,
        Client.subscriptions,
        ("ID", "PENDING", "SCHEME"),
        lambda each: (each.id, each.pending, each.scheme, each.filter),
        "there are no durable subscriptions",
        as_json=as_json,
    )


@subs.command("show")
@click.argument("name")
@json_option
@url_option
def show(name: str, as_json: bool, url: str) -> None:
    """Show one durable subscription.

    \b
    Example:
      culver subs show alerts
    """
    subscription = ask(url, lambda client: client.subscription(name))
    click.echo(json_line(subscription) if as_json else printable(_describe(subscription)))


@subs.command("add")
@click.argument("name")
@click.argument("filter_text", metavar="FILTER")
@click.option(
    "--replace", is_flag=True, help="Replace the filter, scheme and limits of an existing subscription."
)
@_expires_in_option
@_max_count_option
@click.option("--max-bytes", type=click.IntRange(1), metavar="N", help="Most bytes that each mailbox keeps.")
@click.option(
    "--max-age", type=click.IntRange(1), metavar="SECONDS", help="How long each mailbox keeps an event."
)
@click.option("--channel", metavar="CHANNEL", help="Have the site publish what it gets on this channel.")
@scheme_option
@json_option
@url_option
def add(
    name: str,
    filter_text: str,
    replace: bool,
    expires_in: float | None,
    max_count: int | None,
    max_bytes: int | None,
    max_age: int | None,
    channel: str | None,
    scheme: str | None,
    as_json: bool,
    url: str,
) -> None:
    """Add a durable subscription.

    \b
    Examples:
      culver subs add alerts "level = 'error'"
      culver subs add eu "region = 'eu'" --channel alerts.eu
      culver subs add alerts "level IN ('error', 'fatal')" --replace
    """
    limits = Mailbox(max_count=max_count, max_bytes=max_bytes, max_age_seconds=max_age)
    mailbox = None if limits == Mailbox() else limits

    async def work(client: Client) -> Subscription:
        if replace:
            return await client.replace_subscription(
                name,
                filter_text,
                expires_in_seconds=expires_in,
                mailbox=mailbox,
                scheme=scheme,
                channel=channel,
            )
        return await client.create_subscription(
            filter_text,
            id=name,
            expires_in_seconds=expires_in,
            mailbox=mailbox,
            scheme=scheme,
            channel=channel,
        )

    with about_filter(filter_text):
        subscription = ask(url, work)
    for warning in subscription.warnings or ():
        warn(warning.detail)
    if as_json:
        click.echo(json_line(subscription))
    else:
        click.echo(f"{subscription.id} takes effect from position {subscription.since}")


@subs.command("remove")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@url_option
def remove(names: tuple[str, ...], url: str) -> None:
    """Remove durable subscriptions, with their mailboxes.

    \b
    Example:
      culver subs remove alerts
    """

    async def work(client: Client) -> None:
        for name in names:
            await client.delete_subscription(name)
            click.echo(f"{name} is removed")

    ask(url, work)


@subs.command("load")
@click.argument("name")
@click.argument("filter_text", metavar="FILTER")
@click.argument("file", metavar="FILE")
@_expires_in_option
@_max_count_option
@click.option(
    "--first", type=click.IntRange(0), metavar="N", help="Refuse unless the first row gets this number."
)
@click.option(
    "--types",
    metavar="TYPES",
    help="The types of the columns of a CSV file, such as string,real, instead of those in its first line.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be made, and make nothing; needs no site.")
@url_option
def load(
    name: str,
    filter_text: str,
    file: str,
    expires_in: float | None,
    max_count: int | None,
    first: int | None,
    types: str | None,
    dry_run: bool,
    url: str,
) -> None:
    """Add one durable subscription for each row of a file.

    The filter has ? in place of values, and each row fills them in. FILE is CSV, Parquet, or NDJSON with an array
    of values a line; - reads NDJSON from standard input. Row 0 becomes subscription NAME.0, and so on. If the set
    exists, the rows are added to it.

    The first line of CSV names the columns with their types: integer, real, string, boolean or timestamp. A type may
    be left out where the filter requires one, as in x + 1 > ?. A preview on standard error shows the first rows.

    \b
    Examples:
      printf 'symbol:string,close:real\\nACME,20.5\\n' > rows.csv
      culver subs load quotes 'symbol = ? AND close >= ?' rows.csv --dry-run
      echo '["ACME", 20.5]' | culver subs load quotes 'symbol = ? AND close >= ?' -
    """
    import pyarrow as pa

    from culver.config import UNLIMITED_FILTERS
    from culver.model.language import prepare, warnings_about

    with about_filter(filter_text):
        prepared = prepare(filter_text, UNLIMITED_FILTERS)
    columns = _read(file, prepared, None if types is None else types.split(","))
    for line in _preview(name, first, prepared, columns):
        click.echo(printable(line), err=not dry_run)
    for _, detail in warnings_about(prepared.condition, None):
        warn(detail)
    if dry_run:
        return
    table = pa.table(list(columns), [str(place) for place in range(len(columns))])
    mailbox = None if max_count is None else Mailbox(max_count=max_count)

    async def work(client: Client) -> Rows:
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
        rows = ask(url, work, _SET_SECONDS)
    ids = rows.id(0) if rows.count == 1 else f"{rows.id(0)} to {rows.id(rows.count - 1)}"
    verb = "takes" if rows.count == 1 else "take"
    click.echo(f"{counted(rows.count, 'subscription')}, {ids}, {verb} effect from position {rows.since}")


@subs.command("sets")
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


@subs.command("remove-set")
@click.argument("name")
@url_option
def remove_set(name: str, url: str) -> None:
    """Remove a set, with all its subscriptions and mailboxes.

    \b
    Example:
      culver subs remove-set quotes
    """
    count = ask(url, lambda client: client.delete_set(name), _SET_SECONDS)
    click.echo(f"{name} is removed: {counted(count, 'subscription')}")


def _describe(subscription: Subscription) -> str:
    mailbox = subscription.mailbox
    keeps = "nothing: it lives as long as its connection"
    if mailbox is not None:
        most = counted(mailbox.max_count or 0, "event")
        keeps = f"at most {most}, {mailbox.max_bytes} bytes, {mailbox.max_age_seconds} s"
    rows: list[tuple[str, Any]] = [
        ("id", subscription.id),
        ("filter", one_line(subscription.filter)),
        ("scheme", subscription.scheme),
        ("in effect since", f"position {subscription.since}"),
        ("created", _moment(subscription.created_at)),
        ("expires", _moment(subscription.expires_at) if subscription.expires_at else "never"),
        ("pending", counted(subscription.pending, "event")),
        ("keeps", keeps),
    ]
    if subscription.deliver is not None:
        rows.append(("delivers to", f"channel {subscription.deliver.channel}"))
    return "\n".join(f"{name:<16} {value}" for name, value in rows)


def _moment(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")


def _read(file: str, prepared: "Prepared", types: list[str] | None) -> "Columns":
    """The columns of the file. Where nothing says of which types they are, asks whoever sits at the terminal."""
    from culver.cli.row_files import read_rows

    try:
        return read_rows(file, prepared, types)
    except InvalidRequest as exc:
        suggestion = exc.details.get("suggestion")
        if suggestion is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        click.echo(printable(exc.message), err=True)
        if not click.confirm(f"Load them as {','.join(suggestion)}?", err=True):
            raise InvalidRequest("nothing was loaded", field="types") from exc
        return read_rows(file, prepared, suggestion)


def _preview(name: str, first: int | None, prepared: "Prepared", columns: "Columns") -> list[str]:
    """Say what the rows become: how many subscriptions, and the filters of the first. Raises InvalidRequest for a
    value among those that cannot stand where it would."""
    from culver.model.columns import values_at

    count = len(columns[0])
    lines = [f"{counted(count, 'subscription')} in set {name}:"]
    for row in range(min(count, _ROWS_SHOWN)):
        label = f"row {row}" if first is None else f"{name}.{first + row}"
        try:
            text = prepared.bind(values_at(columns, row)).text
        except InvalidFilter as exc:
            raise InvalidRequest(f"row {row}: {exc.message}", field="rows") from exc
        lines.append(f"  {label}  {one_line(text)}")
    if count > _ROWS_SHOWN:
        lines.append(f"  and {count - _ROWS_SHOWN} more")
    return lines
