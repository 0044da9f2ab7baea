import io

from culver.cli.startup_progress import StartupProgress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_message_is_a_line() -> None:
    stream = io.StringIO()
    with StartupProgress(stream) as startup:
        startup.progress("starting Spark (JVM)")
        startup.finish()
        startup.progress("stopping")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("starting Spark (JVM) [0.")
    assert lines[1].startswith("stopping [")
    assert "\r" not in stream.getvalue()


def test_on_a_terminal_one_line_is_repainted_and_cleared_at_the_end() -> None:
    stream = _Terminal()
    with StartupProgress(stream) as startup:
        startup.progress("starting")
        while "starting" not in stream.getvalue():
            pass
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
