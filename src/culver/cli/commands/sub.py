"""`culver sub`: prints the events of a subscription."""

import asyncio
import json
import sys

import click

from culver.cli.client_calls import ask, json_option, scheme_option, url_option, wait_option
from culver.cli.failures import FAILURE, SUCCESS, about_filter
from culver.cli.printable_text import printable
from culver.client import Client, Gap, Message
from culver.errors import counted


@click.command
@click.argument("filter_text", metavar="[FILTER]", required=False)
@click.option("--count", "-n", type=click.IntRange(1), metavar="N", help="Exit after N events.")
@json_option
@click.option(
    "--durable",
    metavar="NAME",
    help="Receive through the durable subscription of that name, which keeps events while nobody listens. It is"
    " made if there is none; if there is one, FILTER may be left out.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop after that time; the exit code is 1 if --count was not reached.",
)
@scheme_option
@wait_option
@url_option
def sub(
    filter_text: str | None,
    count: int | None,
    as_json: bool,
    durable: str | None,
    timeout: float | None,
    scheme: str | None,
    wait_seconds: float,
    url: str,
) -> int:
    """Subscribe to a filter and print its events as they come.

    Each event is a line on standard output: its offset and JSON, or with --json an object with delivery_id,
    offset and event. Everything else, such as a warning that events may be missing, goes to standard error. An
    event of a durable subscription counts as received once it is printed.

    \b
    Examples:
      culver sub "price > 20"
      culver sub "symbol IN ('XYZ', 'ABC') AND price BETWEEN 10 AND 30" --count 5
      culver sub "level = 'error'" --durable alerts --json | jq .event
    """
    if filter_text is None and durable is None:
        raise click.UsageError(
            "there is no filter; give one, as in\n"
            '  culver sub "price > 20"\n'
            "or TRUE for every event, or the name of a durable subscription, as in\n"
            "  culver sub --durable alerts"
        )

    async def receive(client: Client) -> int:
        received = 0
        async with client.subscribe(filter_text, durable=durable, scheme=scheme, gaps=True) as stream:
            click.echo(f"listening from position {stream.since}", err=True)
            try:
                async with asyncio.timeout(timeout):
                    async for item in stream:
                        if isinstance(item, Gap):
                            click.echo(f"culver: {_describe(item)}", err=True)
                            continue
                        _print(item, as_json)
                        received += 1
                        if received == count:
                            await item.ack()
                            return SUCCESS
            except TimeoutError:
                if count is not None:
                    wanted = counted(count, "event")
                    click.echo(f"culver: {received} of {wanted} came within {timeout:g} s", err=True)
                    return FAILURE
                return SUCCESS
        click.echo("culver: the subscription was removed", err=True)
        return FAILURE

    with about_filter(filter_text):
        return ask(url, receive, wait_seconds=wait_seconds)


def _print(message: Message, as_json: bool) -> None:
    """Print one line and flush it, so that a pipe sees an event at once."""
    if as_json:
        record = {"delivery_id": message.delivery_id, "offset": message.offset, "event": message.event}
        line = json.dumps(record, ensure_ascii=False)
    else:
        line = f"{message.offset}  {json.dumps(message.event, ensure_ascii=False)}"
    sys.stdout.buffer.write(printable(line).encode() + b"\n")
    sys.stdout.buffer.flush()


def _describe(gap: Gap) -> str:
    number = "an unknown number" if gap.dropped is None else str(gap.dropped)
    return f"gap: {number} of the events {gap.start} to {gap.end - 1} may be missing ({gap.reason})"
