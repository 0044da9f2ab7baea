"""The group `culver bench`, and the options that its commands share."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from culver.bench import bench_frame

DATA_DIR = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    help="Where sites keep their files while they are measured. The disk counts: a publish is acknowledged after it "
    "is on disk.  [default: the system's temporary directory]",
)
QUICK = click.option(
    "--quick", is_flag=True, help="A short run to see that it works; its figures mean nothing."
)
_Command = Callable[..., Any]


def choices(flag: str, name: str, known: Sequence[str], help_text: str) -> Callable[[_Command], _Command]:
    """An option that may be given several times."""
    kind = click.Choice(known, case_sensitive=False)
    return click.option(flag, name, type=kind, multiple=True, help=help_text)


def number(flag: str, help_text: str, least: int = 1) -> Callable[[_Command], _Command]:
    return click.option(flag, type=click.IntRange(least), default=None, help=help_text)


def plot_directory(default: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--plots",
        type=click.Path(path_type=Path, file_okay=False, writable=True),
        default=Path(default),
        show_default=True,
        help="Directory to draw into, as SVG files.",
    )


@click.group(no_args_is_help=True)
def bench() -> None:
    """Measure Culver: a table for people, a JSON object for machines.

    Every figure is on a named workload, and the JSON object says on which commit, machine and versions it
    was measured.
    """


def benchmark(name: str) -> Callable[[Callable[..., list[bench_frame.Record]]], click.Command]:
    """Turn a function that returns records into the command `culver bench NAME`, with `--json`."""

    def decorate(measure: Callable[..., list[bench_frame.Record]]) -> click.Command:
        @functools.wraps(measure)
        def run(json_path: str | None, **options: Any) -> None:
            from culver.kernel_setup import prepare_kernels

            bench_frame.check_json_path(json_path)
            prepare_kernels(bench_frame.tell)
            bench_frame.report(name, measure(**options), json_path)

        with_json = click.option(
            "--json",
            "json_path",
            metavar="PATH",
            help="Write the results as one JSON object to this file; - is standard output.",
        )(run)
        return bench.command(name)(with_json)

    return decorate
