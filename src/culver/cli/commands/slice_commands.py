"""`culver slices`: shows the slices of a site's index, adds one, removes one."""

from collections.abc import Awaitable, Callable
from typing import Any

import click

from culver.cli.client_calls import ask, json_line, json_option, read_answer, url_option
from culver.cli.printable_text import printable
from culver.cli.site_text import slices_page
from culver.client import Client
from culver.control import SlicesView

# Moving millions of registrations takes a while.
_CHANGE_SECONDS = 600.0


@click.group(no_args_is_help=True)
def slices() -> None:
    """List, add and remove slices of a site's index.

    Each slice matches events against a part of the subscriptions. With the placements event-space, mpartition
    and one-dimension, slices can be added and removed while the site runs; no event is lost or delivered
    twice.
    """


@slices.command("list")
@json_option
@url_option
def list_slices(as_json: bool, url: str) -> None:
    """Show what each slice holds and does, and where the boundaries lie.

    \b
    Examples:
      culver slices list
      culver slices list --json | jq '.slices[].busy'
    """
    _show(url, Client.slices, 30.0, as_json)


@slices.command("add")
@click.option(
    "--split",
    type=click.IntRange(0),
    metavar="N",
    help="Take half of slice N.  [default: the most loaded one]",
)
@json_option
@url_option
def add(split: int | None, as_json: bool, url: str) -> None:
    """Add a slice, which takes half of another one.

    \b
    Examples:
      culver slices add
      culver slices add --split 1
    """
    _show(url, lambda client: client.add_slice(split), _CHANGE_SECONDS, as_json)


@slices.command("remove")
@click.argument("number", type=click.IntRange(0))
@json_option
@url_option
def remove(number: int, as_json: bool, url: str) -> None:
    """Remove a slice. Its neighbours take over what it has, and the others may get new numbers.

    \b
    Example:
      culver slices remove 2
    """
    _show(url, lambda client: client.remove_slice(number), _CHANGE_SECONDS, as_json)


def _show(
    url: str, call: Callable[[Client], Awaitable[dict[str, Any]]], seconds: float, as_json: bool
) -> None:
    view = read_answer(ask(url, call, seconds), SlicesView)
    click.echo(json_line(view) if as_json else printable(slices_page(view)))
