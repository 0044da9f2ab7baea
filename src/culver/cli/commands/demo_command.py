"""`culver demo`: starts what it needs on this machine and shows Culver at work."""

import asyncio

import click

from culver.cli.demo.site_chain import NAMES
from culver.cli.startup_progress import StartupProgress
from culver.config import CHOICES


@click.group(no_args_is_help=True)
def demo() -> None:
    """See Culver at work: starts what it needs on this machine.

    A demo keeps its data in a temporary directory, listens on the loopback address alone, and leaves nothing
    behind.
    """


@demo.command()
@click.option(
    "--sites",
    "count",
    metavar="N",
    type=click.IntRange(2, len(NAMES)),
    default=5,
    show_default=True,
    help="Sites to start.",
)
@click.option(
    "--engine",
    type=click.Choice(CHOICES["pipeline.engine"]),
    default="inline",
    show_default=True,
    help="What matches events; with spark, each site starts a Spark of its own.",
)
@click.option(
    "--routing",
    type=click.Choice(CHOICES["overlay.routing"]),
    default="b-drp",
    show_default=True,
    help="How the sites route; see `culver serve --help`.",
)
@click.option("--once", is_flag=True, help="End after the show, without waiting for Ctrl-C.")
def overlay(count: int, engine: str, routing: str, once: bool) -> int:
    """Run several sites that feed each other, and follow an event from one to the others.

    \b
    Examples:
      culver demo overlay
      culver demo overlay --sites 3 --once
      culver demo overlay --routing clusters
    """
    from culver.cli.demo.overlay_show import run_overlay_demo
    from culver.kernel_setup import prepare_kernels

    with StartupProgress() as startup:
        prepare_kernels(startup.progress)  # once, and not by every site for itself
    return asyncio.run(run_overlay_demo(count, engine, routing, once))
