"""`culver filter`: tries out filters on this machine, without a site."""

import sys
from pathlib import Path

import click

from culver.cli.failures import FAILURE, SUCCESS, about_filter, warn
from culver.cli.printable_text import printable
from culver.errors import InvalidRequest
from culver.model import Event
from culver.model.formats import parse_event
from culver.model.language import (
    Predicate,
    clause_text,
    explain,
    matching_clause,
    parse,
    warnings_about,
)


@click.group("filter", no_args_is_help=True)
def filters() -> None:
    """Try out filters, without a site.

    A filter is an SQL condition over an event's attributes, such as
    "symbol = 'XYZ' AND price BETWEEN 10 AND 30"; docs/filter-language.md describes the language.
    """


@filters.command("explain")
@click.argument("filter_text", metavar="FILTER")
def explain_filter(filter_text: str) -> None:
    """Print the clauses of a filter.

    An event matches a filter when it satisfies all constraints of one of its clauses.

    \b
    Example:
      culver filter explain "(price > 20 OR hot) AND NOT symbol = 'XYZ'"
    """
    predicate = _parse(filter_text)
    _warn(warnings_about(predicate.condition, None))
    if not predicate.clauses:
        click.echo("no event matches: the filter is false or unknown for all of them")
        return
    if () in predicate.clauses:
        click.echo("every event matches")
        return
    number = len(predicate.clauses)
    click.echo("1 clause:" if number == 1 else f"{number} clauses, one of which an event must satisfy:")
    for index, clause in enumerate(predicate.clauses, 1):
        click.echo(f"  {index:>{len(str(number))}}  {printable(clause_text(clause))}")


@filters.command("test")
@click.argument("filter_text", metavar="FILTER")
@click.argument("event", metavar="[FILE | - | JSON]", default="-")
def test(filter_text: str, event: str) -> int:
    """Say whether an event matches a filter, and by which clause, or which constraints fail.

    The event is a JSON object: in a file, on standard input (-), or as the argument itself. The exit code is 0
    for a match, 1 for none, and 2 where the filter or the event cannot be understood.

    \b
    Examples:
      culver filter test "price > 20" event.json
      culver filter test "price > 20" '{"symbol": "XYZ", "price": 21.5}'
    """
    predicate = _parse(filter_text)
    _warn(warnings_about(predicate.condition, predicate.clauses))
    parsed = _read_event(event)
    index = matching_clause(predicate, parsed)
    if index is not None:
        text = clause_text(predicate.clauses[index]) or "every event"
        click.echo(f"match, by clause {index + 1} of {len(predicate.clauses)}: {printable(text)}")
        return SUCCESS
    explanation = explain(predicate, parsed)
    if explanation.result is None:
        click.echo("no match: the result is unknown, since an attribute is missing or of another type")
    else:
        click.echo("no match: the filter is false for this event")
    for line in str(explanation).splitlines()[1:]:
        click.echo(printable(line))
    return FAILURE


def _parse(text: str) -> Predicate:
    with about_filter(text):
        return parse(text)


def _warn(doubts: list[tuple[str, str]]) -> None:
    for _, detail in doubts:
        warn(detail)


def _read_event(argument: str) -> Event:
    if argument == "-":
        return parse_event(sys.stdin.buffer.read())
    if argument.lstrip().startswith("{"):
        return parse_event(argument.encode())
    try:
        return parse_event(Path(argument).read_bytes())
    except OSError as exc:
        raise InvalidRequest(f"cannot read the event from {argument}: {exc.strerror}", field="event") from exc
