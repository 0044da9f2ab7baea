"""The command `culver` itself: a group that knows its commands by name and loads one when it is used."""

import logging
import pkgutil
import sys

import click
from click.shell_completion import CompletionItem

from culver import __version__
from culver.extras import require

LEVELS = ["debug", "info", "warning", "error"]

# Where each command is, and the first line of its help.
_COMMANDS = {
    "serve": ("cli.commands.serve:serve", "Start a site and run it until Ctrl-C."),
    "setup": (
        "cli.commands.setup_command:setup",
        "Compile the kernels of the server now, not at its first start.",
    ),
    "pub": ("cli.commands.pub:pub", "Publish one event, or a stream of them from standard input."),
    "sub": ("cli.commands.sub:sub", "Subscribe to a filter and print its events as they come."),
    "log": ("cli.commands.log_command:log", "Print events that a site still has in its log."),
    "subs": ("cli.commands.subs:subs", "List, show, add and remove durable subscriptions."),
    "top": ("cli.commands.top:top", "Show what a site's pipeline does, live, until Ctrl-C."),
    "slices": ("cli.commands.slice_commands:slices", "List, add and remove slices of a site's index."),
    "overlay": (
        "cli.commands.overlay_command:overlay",
        "Show the other sites that a site is linked with, or have it forget one.",
    ),
    "rescue": ("cli.commands.rescue:rescue", "Save what can be read of a damaged registry."),
    "filter": ("cli.commands.filter_command:filters", "Try out filters, without a site."),
    "channels": (
        "cli.commands.channels_command:channels",
        "Channels over many Redis or Valkey servers: topics with low latency.",
    ),
    "cluster": (
        "cli.commands.cluster_command:cluster",
        "Start and stop a standalone Spark cluster.",
    ),
    "demo": ("cli.commands.demo_command:demo", "See Culver at work: starts what it needs on this machine."),
    "bench": ("bench.bench_command:bench", "Measure Culver: a table for people, a JSON object for machines."),
}

# The extra of the package that a command needs. A command of a group may need another than the group.
NEEDS = {
    "serve": "server",
    "serve --engine spark": "spark",
    "setup": "server",
    "subs load": "server",
    "rescue": "server",
    "filter": "server",
    "channels": "channels",
    "channels serve": "server",
    "cluster": "spark",
    "demo": "server",
    "bench": "bench",
}
_HELP_OPTIONS = ["-h", "--help"]


class LazyGroup(click.Group):
    """Lists its commands from the table, so that neither `culver --help` nor a shell's completion imports any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = pkgutil.resolve_name(f"culver.{_COMMANDS[cmd_name][0]}")
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Completion of a command line, and its help, work without the extra.
        if not ctx.resilient_parsing and not set(args) & set(_HELP_OPTIONS):
            for command in (" ".join(args[:2]), args[0]):
                if command in NEEDS:
                    require(NEEDS[command], f"culver {command}")
        return super().resolve_command(ctx, args)


def configure_logging(level: str, line_format: str = "culver: %(message)s") -> None:
    """Send log records to standard error. On a terminal each first clears the line, which may show a spinner."""
    if sys.stderr.isatty():
        line_format = "\r\x1b[K" + line_format
    logging.basicConfig(level=level.upper(), format=line_format, stream=sys.stderr, force=True)


def _root(log_level: str) -> None:
    configure_logging(log_level)


culver = LazyGroup(
    name="culver",
    callback=_root,
    no_args_is_help=True,
    context_settings={"help_option_names": _HELP_OPTIONS, "max_content_width": 100},
    params=[
        click.Option(
            ["--log-level"],
            type=click.Choice(LEVELS, case_sensitive=False),
            default="warning",
            show_default=True,
            envvar="CULVER_LOG_LEVEL",
            show_envvar=True,
            help="How much to log on standard error.",
        )
    ],
    help="""Culver: content-based publish/subscribe on Apache Spark.

    Publishers send events with typed attributes; subscribers register filters over those attributes; Culver
    delivers every event to exactly the subscriptions that it satisfies.

    \b
    Try it, in three terminals:
      culver serve --engine inline
      culver sub "price > 20"
      culver pub '{"symbol": "XYZ", "price": 21.5}'
    """,
)
culver = click.version_option(__version__, prog_name="culver", message="%(prog)s %(version)s")(culver)
