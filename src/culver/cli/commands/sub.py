"""`culver sub`: prints the events of a subscription, or of many."""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from culver.cli.client_calls import ask, json_option, scheme_option, url_option, wait_option
from culver.cli.failures import FAILURE, SUCCESS, about_filter
from culver.cli.printable_text import printable
from culver.client import Client, Gap, GroupGap, GroupMessage, GroupStream, Message, Stream
from culver.errors import RequestRefused, counted, did_you_mean

_NAMED = 3  # subscriptions in a line
_SETS_LOOKED_AT = 1_000


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
    "--set", "set_name", metavar="NAME", help="Receive for all subscriptions of a set, as one stream."
)
@click.option(
    "--prefix", metavar="PREFIX", help="Receive for all durable subscriptions whose ids begin with PREFIX."
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
    set_name: str | None,
    prefix: str | None,
    timeout: float | None,
    scheme: str | None,
    wait_seconds: float,
    url: str,
) -> int:
    """Subscribe to a filter and print its events as they come.

    Each event is a line on standard output: its offset and JSON, or with --json an object with delivery_id,
    offset and event. Everything else, such as a warning that events may be missing, goes to standard error. An
    event of a durable subscription counts as received once it is printed.

    With --set or --prefix, an event is one line for all durable subscriptions that it is for: its offset, the first
    three of their names, and JSON; or with --json an object with offset, subscriptions (all of them) and event.

    \b
    Examples:
      culver sub "price > 20"
      culver sub "symbol IN ('XYZ', 'ABC') AND price BETWEEN 10 AND 30" --count 5
      culver sub "level = 'error'" --durable alerts --json | jq .event
      culver sub --set quotes
      culver sub --prefix alerts- --json
    """
    group = [name for name, given in (("--set", set_name), ("--prefix", prefix)) if given is not None]
    others = (("FILTER", filter_text), ("--durable", durable), ("--scheme", scheme))
    if group and (len(group) > 1 or any(given is not None for _, given in others)):
        excess = [*group[1:], *(name for name, given in others if given is not None)]
        raise click.UsageError(
            f"{group[0]} receives for subscriptions that exist; leave out {' and '.join(excess)}"
        )
    if not group and filter_text is None and durable is None:
        raise click.UsageError(
            "there is no filter; give one, as in\n"
            '  culver sub "price > 20"\n'
            "or TRUE for every event, or the name of a durable subscription, as in\n"
            "  culver sub --durable alerts\n"
            "or a set of them, as in\n"
            "  culver sub --set quotes"
        )

    async def receive(client: Client) -> int:
        received = 0
        stream: Stream[Message | Gap] | GroupStream[GroupMessage | GroupGap]
        if set_name is not None:
            await _check_set(client, set_name)
            stream = client.subscribe_set(set_name, gaps=True)
        elif prefix is not None:
            stream = client.subscribe_prefix(prefix, gaps=True)
        else:
            stream = client.subscribe(filter_text, durable=durable, scheme=scheme, gaps=True)
        async with stream:
            click.echo(_beginning(stream), err=True)
            try:
                async with asyncio.timeout(timeout):
                    async for item in stream:
                        if isinstance(item, Gap | GroupGap):
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
        ended = "subscription" if set_name is None else f"set {set_name}"
        click.echo(f"culver: the {printable(ended)} was removed", err=True)
        return FAILURE

    with about_filter(filter_text):
        return ask(url, receive, wait_seconds=wait_seconds)


async def _check_set(client: Client, name: str) -> None:
    """Raises RequestRefused for a set that does not exist, with the nearest name there is."""
    known = []
    async for each in client.sets():
        if each.set == name:
            return
        known.append(each.set)
        if len(known) == _SETS_LOOKED_AT:
            return  # the site says whether it has it
    hint = did_you_mean(name, known) if known else "the site has no sets; `culver subs load` makes one"
    raise RequestRefused(f"there is no set {name!r}; {hint}", field="set", code="not_found", status=404)


def _beginning(stream: Stream[Any] | GroupStream[Any]) -> str:
    if isinstance(stream, Stream):
        return f"listening from position {stream.since}"
    return f"following {counted(stream.count or 0, 'subscription')}"


def _print(message: Message | GroupMessage, as_json: bool) -> None:
    """Print one line and flush it, so that a pipe sees an event at once."""
    if as_json:
        record: dict[str, Any] = {"offset": message.offset}
        if isinstance(message, GroupMessage):
            record["subscriptions"] = message.subscriptions
        else:
            record = {"delivery_id": message.delivery_id} | record
        line = json.dumps(record | {"event": message.event}, ensure_ascii=False)
    else:
        whose = f"{_names(message.subscriptions)}  " if isinstance(message, GroupMessage) else ""
        line = f"{message.offset}  {whose}{json.dumps(message.event, ensure_ascii=False)}"
    sys.stdout.buffer.write(printable(line).encode() + b"\n")
    sys.stdout.buffer.flush()


def _describe(gap: Gap | GroupGap) -> str:
    number = "an unknown number" if gap.dropped is None else str(gap.dropped)
    whose = f" for {_names(gap.subscriptions)}" if isinstance(gap, GroupGap) else ""
    return f"gap{whose}: {number} of the events {gap.start} to {gap.end - 1} may be missing ({gap.reason})"


def _names(subscriptions: Sequence[str]) -> str:
    """quotes.0,quotes.7,quotes.9,+172"""
    more = len(subscriptions) - _NAMED
    return ",".join([*subscriptions[:_NAMED], *([f"+{more}"] if more > 0 else [])])
