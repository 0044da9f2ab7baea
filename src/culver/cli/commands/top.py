"""`culver top`: shows a site's pipeline live."""

import asyncio
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import click
import msgspec

from culver.cli.client_calls import json_line, json_option, read_answer, url_option
from culver.cli.printable_text import printable
from culver.cli.site_text import top_frame
from culver.client import Client, connect
from culver.control import SiteObservation, rates_between
from culver.errors import ConnectionFailed

# The terminal's second screen, without a cursor, so that the first one comes back as it was.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K\r\n", "\x1b[K\x1b[J"


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two frames, over which the rates are measured.",
)
@click.option("--once", is_flag=True, help="Print one frame after one interval, and exit.")
@json_option
@url_option
def top(interval: float, once: bool, as_json: bool, url: str) -> None:
    """Show what a site's pipeline does, live, until Ctrl-C.

    A frame has the rates of publishing, matching and sending, each operator's share of the work, how evenly the
    slices of the index are used, the batches, and what waits where. A terminal shows the last frame in place;
    elsewhere frames follow one another.

    \b
    Examples:
      culver top
      culver top --interval 5 --url http://site:8080
      culver top --once --json | jq .matched_per_second
    """
    asyncio.run(_watch(url, interval, once, as_json))


async def _watch(url: str, interval: float, once: bool, as_json: bool) -> None:
    live = sys.stdout.isatty() and not once and not as_json
    async with connect(url) as client:
        before = await _observe(client)
        with _screen() if live else nullcontext():
            if live:
                _paint("waiting for the first frame; Ctrl-C ends")
            while True:
                await asyncio.sleep(interval)
                try:
                    after = await _observe(client)
                except ConnectionFailed as exc:
                    if not live:
                        raise
                    _paint(f"{exc.message}\n\ntrying again; Ctrl-C ends")
                    continue
                view = rates_between(before, after)
                before = after
                if live:
                    _paint(top_frame(view, url))
                elif as_json:
                    click.echo(json_line({"url": url, **msgspec.to_builtins(view)}))
                else:
                    click.echo(printable(top_frame(view, url)) + ("" if once else "\n"))
                if once:
                    return


async def _observe(client: Client) -> SiteObservation:
    return read_answer(await client.pipeline(), SiteObservation)


def _paint(text: str) -> None:
    """Draw a frame from the upper left corner on, cut to the terminal's size. Clearing first would flicker."""
    width, height = shutil.get_terminal_size()
    lines = [line[:width] for line in printable(text).split("\n")[:height]]
    sys.stdout.write(_HOME + _END_OF_LINE.join(lines) + _REST_OF_SCREEN)
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[None]:
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
