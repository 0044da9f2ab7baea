"""The command line.

root              the command `culver`: its table of commands, each loaded when it is used
failures          runs a command line; turns errors into messages and exit codes
commands/         one module for each command, or group of commands
client_calls      options, calls, answers and lists, shared by the commands that call a site
row_files         reads the files of `culver subs load`
line_publisher    reads standard input and publishes its lines
site_text         one frame of `culver top`, and the page of `culver slices`
overlay_text      the pages of `culver overlay`
demo/             what `culver demo` starts and shows
startup_progress  the line that shows how a start goes on; shell_hints the lines to paste after it
"""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 for success, 1 for failure, 2 for input that cannot
    be understood, 130 after Ctrl-C. Messages go to standard error, one line each, without a traceback
    (unless CULVER_DEBUG is set)."""
    try:
        from culver.cli.failures import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
