"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from culver.client import DEFAULT_URL, VARIABLE

_Command = TypeVar("_Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")


def url_option(command: _Command) -> _Command:
    return click.option(
        "--url",
        metavar="URL",
        envvar=VARIABLE,
        show_envvar=True,
        default=DEFAULT_URL,
        show_default=True,
        help="Address of the site.",
    )(command)


def scheme_option(command: _Command) -> _Command:
    return click.option(
        "--scheme",
        metavar="NAME",
        help="The site's filter that matches it: columnar (the default), counting or reference.",
    )(command)
