"""`culver serve`: runs a site."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from culver.cli.exposure_warnings import warnings_of_site
from culver.cli.failures import warn
from culver.cli.root import LEVELS, NEEDS, configure_logging
from culver.cli.shell_hints import invocation, try_out_lines
from culver.cli.startup_progress import StartupProgress
from culver.config import CHOICES, MOST_SLICES, Settings, load
from culver.errors import InvalidConfiguration
from culver.extras import require
from culver.process_setup import LOG_FORMAT

_SETTING_OF_OPTION = {
    "engine": "pipeline.engine",
    "spark_master": "pipeline.spark_master",
    "spark_conf": "pipeline.spark_conf",
    "spark_ui": "pipeline.spark_ui",
    "placement": "pipeline.placement",
    "slices": "pipeline.slices",
    "host": "gateway.host",
    "port": "gateway.port",
    "gateways": "gateway.processes",
    "channels_url": "channels.url",
    "name": "overlay.name",
    "overlay": "overlay.listen",
    "peer": "overlay.peers",
    "routing": "overlay.routing",
    "data_dir": "data_dir",
}


@click.command(no_args_is_help=False)
@click.option(
    "--engine",
    type=click.Choice(CHOICES["pipeline.engine"]),
    help="What matches events: Spark, or this process itself.  [default: spark]",
)
@click.option("--spark-master", metavar="URL", help="Spark master of the spark engine.  [default: local[*]]")
@click.option(
    "--spark-conf",
    metavar="NAME=VALUE",
    multiple=True,
    callback=lambda _context, _option, given: _pairs(given),
    help="A setting of Spark, such as spark.executor.memory=2g; repeat it for more.",
)
@click.option(
    "--spark-ui",
    is_flag=True,
    default=None,
    help="Run Spark's own web interface too; the command shows its address at the start.",
)
@click.option(
    "--placement",
    type=click.Choice(CHOICES["pipeline.placement"]),
    help="How to place subscriptions on the slices of matching.  [default: auto]",
)
@click.option(
    "--slices",
    metavar="N",
    type=click.IntRange(1, MOST_SLICES),
    help="Slices of a new index; an index whose slices can change while the site runs keeps its own (see culver "
    "slices).  [default: one for each worker]",
)
@click.option("--host", metavar="HOST", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 is any free one.  [default: 8080]",
)
@click.option(
    "--gateways",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Gateway processes, each with its share of the subscriptions, on the ports from --port on.  [default: 1]",
)
@click.option(
    "--channels-url",
    metavar="URL",
    help="Address of culver channels serve: subscriptions may deliver to its channels, and browsers use them.",
)
@click.option("--name", metavar="NAME", help="Name of this site, by which other sites know it.")
@click.option(
    "--overlay",
    metavar="HOST:PORT",
    help="Address to listen on for other sites; port 0 is any free one. Needs --name.",
)
@click.option(
    "--peer",
    metavar="HOST:PORT",
    multiple=True,
    callback=lambda _context, _option, given: " ".join(given) or None,
    help="Address of another site to link with, with ?label=L&cost=N if need be; repeat it for more. Needs --name.",
)
@click.option(
    "--routing",
    type=click.Choice(CHOICES["overlay.routing"]),
    help="How events travel between sites.  [default: b-drp]",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep the log, the subscriptions and the mailboxes.  [default: culver-data]",
)
@click.option(
    "--config",
    metavar="FILE",
    envvar="CULVER_CONFIG",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file (TOML). Environment variables and the other options win over it.",
)
@click.option(
    "--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="Same as culver --log-level."
)
@click.pass_context
def serve(context: click.Context, /, config: Path | None, log_level: str | None, **options: Any) -> int:
    """Start a site and run it until Ctrl-C.

    The spark engine needs Java 17 or newer and takes some seconds to start; the inline engine needs
    nothing and starts at once. When the site is ready, the command shows two lines to paste into other
    terminals.

    All other settings come from a file and from environment variables: the setting `port` of section
    `gateway` is CULVER_GATEWAY_PORT.

    \b
    Examples:
      culver serve
      culver serve --engine inline --port 9000 --data-dir /var/lib/culver
      culver serve --spark-master spark://head:7077 --config culver.toml
      culver serve --gateways 3
      culver serve --placement mpartition --slices 4
      culver serve --name paris --overlay 0.0.0.0:7401 --peer lyon.example:7401
    """
    parent = context.find_root().params
    configure_logging(log_level or parent.get("log_level") or "warning", LOG_FORMAT)
    return _run(load(config, flags={_SETTING_OF_OPTION[name]: value for name, value in options.items()}))


def _pairs(given: tuple[str, ...]) -> dict[str, str] | None:
    for text in given:
        if text.find("=") < 1:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--spark-conf")
    return dict(text.split("=", 1) for text in given) or None


def _check_platform(engine: str) -> None:
    if not sys.platform.startswith("linux"):
        raise InvalidConfiguration(
            "a site runs on Linux only: start it in a container or a virtual machine. The client, and the commands "
            "that call a site, work here too"
        )
    if engine == "spark":
        user = "serve --engine spark"
        require(NEEDS[user], f"culver {user}", "; culver serve --engine inline works without it")


def _run(settings: Settings) -> int:
    _check_platform(settings.pipeline.engine)
    for text in warnings_of_site(settings):
        warn(text)
    with StartupProgress() as startup:
        startup.progress("loading")
        from culver.assembly import run_site
        from culver.kernel_setup import prepare_kernels

        prepare_kernels(startup.progress)

        def on_ready(url: str, spark_ui: str | None, overlay: str | None) -> None:
            seconds = startup.finish()
            click.echo(f"Culver is ready on {url} (engine {settings.pipeline.engine}, {seconds:.1f} s)")
            if settings.gateway.processes > 1:
                click.echo(
                    f"{settings.gateway.processes} gateways share its subscriptions: see {url}/v1/gateways"
                )
            if spark_ui is not None:
                click.echo(f"Spark's web interface is on {spark_ui}")
            if overlay is not None:
                click.echo(f"{overlay}. This shows them:\n  {invocation()} overlay sites --url {url}")
            for line in try_out_lines(url, invocation(), os.environ):
                click.echo(line)

        return run_site(settings, startup.progress, on_ready)
