"""`culver subs`: manages durable subscriptions."""

from datetime import datetime
from typing import Any

import click

from culver.cli.client_calls import run_async
from culver.cli.commands import set_commands
from culver.cli.failures import about_filter
from culver.cli.listing import json_line, list_all, one_line
from culver.cli.options import json_option, scheme_option, url_option
from culver.client import Client, Mailbox, Subscription, connect


@click.group(no_args_is_help=True)
def subs() -> None:
    """List, show, add and remove durable subscriptions.

    A durable subscription keeps matching events in a mailbox on the site until they are acknowledged,
    whether anybody listens or not. `culver sub --durable NAME` receives them.
    """


for command in set_commands.COMMANDS:
    subs.add_command(command)


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

    async def work() -> Subscription:
        async with connect(url) as client:
            return await client.subscription(name)

    subscription = run_async(work())
    click.echo(json_line(subscription) if as_json else _describe(subscription))


@subs.command("add")
@click.argument("name")
@click.argument("filter_text", metavar="FILTER")
@click.option(
    "--replace", is_flag=True, help="Replace the filter, scheme and limits of an existing subscription."
)
@click.option(
    "--expires-in",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Remove it after that time.",
)
@click.option("--max-count", type=click.IntRange(1), metavar="N", help="Most events that its mailbox keeps.")
@click.option("--max-bytes", type=click.IntRange(1), metavar="N", help="Most bytes that its mailbox keeps.")
@click.option(
    "--max-age", type=click.IntRange(1), metavar="SECONDS", help="How long its mailbox keeps an event."
)
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
    scheme: str | None,
    as_json: bool,
    url: str,
) -> None:
    """Add a durable subscription.

    \b
    Examples:
      culver subs add alerts "level = 'error'"
      culver subs add alerts "level IN ('error', 'fatal')" --replace
    """
    limits = Mailbox(max_count=max_count, max_bytes=max_bytes, max_age_seconds=max_age)
    mailbox = None if limits == Mailbox() else limits

    async def work() -> Subscription:
        async with connect(url) as client:
            if replace:
                return await client.replace_subscription(
                    name, filter_text, expires_in_seconds=expires_in, mailbox=mailbox, scheme=scheme
                )
            return await client.create_subscription(
                filter_text, id=name, expires_in_seconds=expires_in, mailbox=mailbox, scheme=scheme
            )

    with about_filter(filter_text):
        subscription = run_async(work())
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

    async def work() -> None:
        async with connect(url) as client:
            for name in names:
                await client.delete_subscription(name)
                click.echo(f"{name} is removed")

    run_async(work())


def _describe(subscription: Subscription) -> str:
    mailbox = subscription.mailbox
    keeps = "nothing: it lives as long as its connection"
    if mailbox is not None:
        keeps = f"at most {mailbox.max_count} events, {mailbox.max_bytes} bytes, {mailbox.max_age_seconds} s"
    rows: list[tuple[str, Any]] = [
        ("id", subscription.id),
        ("filter", one_line(subscription.filter)),
        ("scheme", subscription.scheme),
        ("in effect since", f"position {subscription.since}"),
        ("created", _moment(subscription.created_at)),
        ("expires", _moment(subscription.expires_at) if subscription.expires_at else "never"),
        ("pending", f"{subscription.pending} events"),
        ("keeps", keeps),
    ]
    return "\n".join(f"{name:<16} {value}" for name, value in rows)


def _moment(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
