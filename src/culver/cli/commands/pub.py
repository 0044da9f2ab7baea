"""`culver pub`: publishes events."""

import sys

import click
import msgspec

from culver.cli.client_calls import ask, url_option, wait_option
from culver.cli.failures import INVALID, SUCCESS
from culver.cli.line_publisher import LinePublisher, PublishSummary
from culver.client import Client, Receipt, encode_event
from culver.errors import InvalidEvent, counted

_EXAMPLE = """culver pub '{"symbol": "XYZ", "price": 21.5}'"""


@click.command(no_args_is_help=False)
@click.argument("event", metavar="[JSON | -]", required=False)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing if all goes well.")
@wait_option
@url_option
def pub(event: str | None, quiet: bool, wait_seconds: float, url: str) -> int:
    """Publish one event, or a stream of them from standard input.

    An event is a JSON object; the site acknowledges it once it is on disk. With - (or without an argument, in
    a pipe), the command reads NDJSON from standard input, one event a line, and sends events as they come. It
    names each line that is refused and goes on with the others, though those of the same batch may come later
    than their turn; the exit code is then not 0.

    \b
    Examples:
      culver pub '{"symbol": "XYZ", "price": 21.5}'
      culver pub - < events.ndjson
      tail -f app.log.json | culver pub --url http://culver.example:8080
    """
    if event is None and sys.stdin.isatty():
        raise click.UsageError(
            f"there is no event; give one as JSON, as in\n  {_EXAMPLE}\n"
            "or send NDJSON (one JSON object a line) to standard input, as in\n  culver pub - < events.ndjson"
        )
    if event is None or event == "-":
        summary = ask(url, _publish_lines, wait_seconds=wait_seconds)
        if summary.refused:
            verb = "was" if summary.total == 1 else "were"
            click.echo(
                f"culver: {summary.refused} of {counted(summary.total, 'event')} {verb} refused", err=True
            )
        if not quiet:
            click.echo(summary.describe())
        return INVALID if summary.refused else SUCCESS
    events = _events(event)
    receipt = ask(url, lambda client: client.publish(events), wait_seconds=wait_seconds)
    if not quiet:
        click.echo(_describe(receipt))
    return SUCCESS


def _events(text: str) -> list[bytes]:
    try:
        encoded = text.encode()
        if encoded.lstrip().startswith(b"["):
            return [bytes(each) for each in msgspec.json.decode(encoded, type=list[msgspec.Raw])]
        return [encode_event(encoded)]
    except (InvalidEvent, msgspec.DecodeError, UnicodeEncodeError) as exc:
        raise InvalidEvent(f"the argument is not an event: {exc}; write it as in {_EXAMPLE}") from exc


async def _publish_lines(client: Client) -> PublishSummary:
    return await LinePublisher(client, show_progress=sys.stderr.isatty()).run(sys.stdin.buffer)


def _describe(receipt: Receipt) -> str:
    number = receipt.next_offset - receipt.first_offset
    if number == 1:
        return f"1 event at offset {receipt.first_offset}"
    return f"{number} events at offsets {receipt.first_offset} to {receipt.next_offset - 1}"
