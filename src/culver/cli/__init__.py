"""The command line. Each command lives in a module of its own, imported when it is used."""

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
