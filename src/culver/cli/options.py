"""Options that several commands share, and how a command runs a client."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from culver.client import DEFAULT_URL, VARIABLE

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Result = TypeVar("Result")


def url_option(command: Decorated) -> Decorated:
    return click.option(
        "--url",
        metavar="URL",
        envvar=VARIABLE,
        show_envvar=True,
        default=DEFAULT_URL,
        show_default=True,
        help="Address of the site.",
    )(command)


def scheme_option(command: Decorated) -> Decorated:
    return click.option(
        "--scheme",
        metavar="NAME",
        help="The site's filter that matches it: columnar (the default), counting or reference.",
    )(command)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a client's work to its end. Ctrl-C cancels it, lets it close its connection, and is raised."""
    return asyncio.run(work)
