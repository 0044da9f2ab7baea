"""`culver log`: prints events that a site still has in its log."""

import json
from datetime import UTC, datetime

import click

from culver.cli.client_calls import ask, json_option, url_option
from culver.cli.failures import about_filter
from culver.cli.printable_text import printable
from culver.client import Client

_OFFSET = click.IntRange(0)


class _Time(click.ParamType):  # type: ignore[type-arg]
    name = "time"

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2026-01-05T09:30:00Z", param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.command("log")
@click.argument("filter_text", metavar="[FILTER]", required=False)
@click.option("--from", "start", type=_OFFSET, metavar="OFFSET", help="Begin at this offset.")
@click.option("--to", "end", type=_OFFSET, metavar="OFFSET", help="End before this offset.")
@click.option(
    "--since", type=_Time(), metavar="TIME", help="Begin with what was received then; UTC without an offset."
)
@click.option("--until", type=_Time(), metavar="TIME", help="End before what was received then.")
@click.option("--count", "-n", type=click.IntRange(1), metavar="N", help="Exit after N events.")
@json_option
@url_option
def log(
    filter_text: str | None,
    start: int | None,
    end: int | None,
    since: datetime | None,
    until: datetime | None,
    count: int | None,
    as_json: bool,
    url: str,
) -> None:
    """Print events that a site still has in its log.

    Each event is a line: its offset and JSON, or with --json an object with offset, received and event. Nobody's
    mailbox changes.

    \b
    Examples:
      culver log "price > 20" --since 2026-01-05T09:30:00Z
      culver log --from 1000 --count 10 --json
    """

    async def show(client: Client) -> None:
        shown = 0
        async for event in client.history(start, end, since=since, until=until, filter_text=filter_text):
            body = {"offset": event.offset, "received": event.received.isoformat(), "event": event.event}
            line = json.dumps(body if as_json else event.event, ensure_ascii=False)
            click.echo(printable(line if as_json else f"{event.offset}  {line}"))
            shown += 1
            if shown == count:
                return

    with about_filter(filter_text):
        ask(url, show)
