"""Runs a command line, and turns an error into a message and an exit code."""

import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from culver.cli.printable_text import printable
from culver.cli.root import culver
from culver.errors import ConnectionFailed, CulverError, InvalidInput, RequestRefused, did_you_mean

SUCCESS, FAILURE, INVALID, INTERRUPTED = 0, 1, 2, 130

# Columns. A longer line is cut to the part around the place, with so many columns before it.
_WIDTH = 100
_LEAD = 40
_CUT = "..."


def run(arguments: Sequence[str] | None) -> int:
    """Run the command line; every error that is meant for people ends here. Returns the exit code."""
    debug = os.environ.get("CULVER_DEBUG", "") not in ("", "0")
    try:
        result = culver.main(
            args=None if arguments is None else list(arguments), prog_name="culver", standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.format_message(), err=True)
        return INVALID
    except click.UsageError as exc:
        _say(_usage_message(exc))
        if exc.ctx is not None:
            click.echo(f"Try: {exc.ctx.command_path} --help", err=True)
        return INVALID
    except click.ClickException as exc:
        _say(exc.format_message())
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except CulverError as exc:
        if debug:
            raise
        report(exc)
        return exit_code(exc)
    except Exception as exc:
        if debug:
            raise
        _say(f"internal error: {type(exc).__name__}: {exc}; CULVER_DEBUG=1 shows where")
        return FAILURE
    return result if isinstance(result, int) else SUCCESS


def _usage_message(error: click.UsageError) -> str:
    if isinstance(error, click.exceptions.NoSuchCommand) and error.ctx is not None:
        group = error.ctx.command
        assert isinstance(group, click.Group)
        known = group.list_commands(error.ctx)
        return f"there is no command {error.command_name!r}; {did_you_mean(error.command_name, known)}"
    return error.format_message()


def report(error: CulverError) -> None:
    """One line on standard error; for a filter, also the filter with a caret under the position."""
    message = error.message
    if isinstance(error, ConnectionFailed) and "connection refused" in message:
        message += "; is a site running there? `culver serve` starts one"
    _say(message)
    text, position = error.details.get("filter"), error.details.get("position")
    if isinstance(text, str) and isinstance(position, int):
        for line in point_at(text, position):
            click.echo("  " + line, err=True)


def exit_code(error: CulverError) -> int:
    if isinstance(error, RequestRefused):
        return INVALID if str(error.details.get("code", "")).startswith("invalid_") else FAILURE
    return INVALID if isinstance(error, InvalidInput) else FAILURE


@contextmanager
def about_filter(text: str | None) -> Iterator[None]:
    """Adds the text of the filter to an error about it that is raised inside, so that `report` can show it."""
    try:
        yield
    except CulverError as exc:
        if text is not None and "position" in exc.details:
            exc.details.setdefault("filter", text)
        raise


def warn(message: str) -> None:
    """Say that something was done, and is perhaps not what was meant."""
    _say(f"warning: {message}", "yellow")


def painted(text: str, colour: str) -> str:
    """The text in a colour, unless the variable NO_COLOR is set; `click.echo` leaves colours out of what is not shown
    on a terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour)


def _say(message: str, colour: str = "red") -> None:
    first, *rest = printable(message).splitlines() or [""]
    click.echo(f"{painted('culver:', colour)} {first}", err=True)
    for line in rest:
        click.echo(line, err=True)
    sys.stderr.flush()


def point_at(text: str, position: int) -> list[str]:
    """Two lines: the line of `text` that holds the character at `position` (from 0), and the caret. The end
    of the text is a place too."""
    position = max(0, min(position, len(text)))
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : len(text) if end < 0 else end]
    before, after = _printable(line[: position - start]), _printable(line[position - start :])
    if _columns(before) + _columns(after) > _WIDTH:
        if len(before) > _LEAD:
            before = _CUT + before[-_LEAD:]
        room = _WIDTH - _columns(before)
        if len(after) > room:
            after = after[:room] + _CUT
    return [(before + after).rstrip(), " " * _columns(before) + "^"]


def _printable(text: str) -> str:
    """Control characters, tabs among them, take one blank column each."""
    return "".join(" " if unicodedata.category(c).startswith("C") else c for c in text)


def _columns(text: str) -> int:
    """How many columns a terminal gives the text: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
