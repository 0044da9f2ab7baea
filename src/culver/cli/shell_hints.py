"""Command lines for a person to paste: how to call this program, and how to try a site out."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from culver.client import DEFAULT_URL, VARIABLE


def try_out_lines(url: str, command: str, environment: Mapping[str, str]) -> list[str]:
    """The lines after "Culver is ready": among them one that subscribes and one that publishes, ready to paste."""
    reachable = _reachable(url)
    assumed = environment.get(VARIABLE) or DEFAULT_URL
    option = "" if reachable == DEFAULT_URL == assumed else f" --url {shlex.quote(reachable)}"
    return [
        "",
        "Paste this into a second terminal to subscribe:",
        f'  {command} sub "price > 20"{option}',
        "and this into a third one to publish:",
        f"""  {command} pub '{{"symbol": "XYZ", "price": 21.5}}'{option}""",
        "",
        f"The HTTP interface is described on {reachable}/docs. Ctrl-C stops the site.",
    ]


def invocation(arguments: list[str] | None = None, directory: Path | None = None) -> str:
    """How to call this program from a shell in this directory: `culver` where the shell finds it by that name."""
    program = Path((sys.argv if arguments is None else arguments)[0])
    here = Path.cwd() if directory is None else directory
    if program.name == "__main__.py":
        return f"{_shortest(Path(sys.executable), here)} -m culver"
    if not program.is_absolute() and program.parent == Path():
        return shlex.quote(str(program))
    found = shutil.which(program.name)
    if found is not None and Path(found).absolute() == program.absolute():
        return shlex.quote(program.name)
    return _shortest(program, here)


def _shortest(path: Path, here: Path) -> str:
    """The path relative to the directory if the file lies in it, else the absolute one. Symbolic links stay,
    because a virtual environment's interpreter is one."""
    absolute = Path(os.path.abspath(here / path))
    return shlex.quote(str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute))


def _reachable(url: str) -> str:
    """An address to connect to: a site can listen on "any address", but nobody can connect to that."""
    parts = urlsplit(url)
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(parts.hostname or "")
    return url.rstrip("/") if host is None else f"{parts.scheme}://{host}:{parts.port}"
