import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

from culver import __version__
from culver.cli import main
from culver.cli.root import culver


def _commands() -> list[tuple[str, click.Command]]:
    context = click.Context(culver, info_name="culver")
    found = []
    for name in culver.list_commands(context):
        command = culver.get_command(context, name)
        assert command is not None
        found.append((name, command))
        if isinstance(command, click.Group) and name != "bench":
            found += [(f"{name} {inner}", each) for inner, each in command.commands.items()]
    return found


def test_the_list_of_commands_says_what_each_command_says_itself() -> None:
    context = click.Context(culver, info_name="culver")
    formatter = click.HelpFormatter(width=200)
    culver.format_commands(context, formatter)
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in formatter.getvalue().splitlines()[1:]}
    for name in shown:
        command = culver.get_command(context, name)
        assert command is not None
        assert command.help is not None
        assert shown[name] == command.help.splitlines()[0]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_with_an_example(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, command in _commands():
        assert main([*name.split(), flag]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: culver {name}")
        if not isinstance(command, click.Group):
            assert "Example" in shown, name


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"culver {__version__}\n"


def test_an_unknown_command_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish"]) == 2
    assert capsys.readouterr().err == (
        "culver: there is no command 'publish'; "
        "the commands are serve, setup, pub, sub, subs, top, slices, overlay, filter, channels, cluster, demo, "
        "bench\n"
        "Try: culver --help\n"
    )


def _load(code: str) -> float:
    """Run the code in a process of its own, three times; returns the least processor time in seconds."""
    best = 99.0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


def test_help_is_fast_and_imports_no_command() -> None:
    code = (
        "import sys; from culver.cli import main; main(['--help']);"
        "heavy = ('numpy', 'pyarrow', 'websockets', 'httpx', 'culver.cli.commands.pub');"
        "sys.exit(any(module in sys.modules for module in heavy))"
    )
    assert _load(code) < 0.3


@pytest.mark.parametrize("command", ["top", "slice_commands", "overlay_command"])
def test_looking_at_a_site_loads_neither_kernels_nor_arrow(command: str) -> None:
    code = (
        f"import sys, culver.cli.commands.{command};"
        "from culver.control import SiteObservation, SlicesView, rates_between;"
        "sys.exit(any(module in sys.modules for module in ('numba', 'pyarrow', 'pyspark')))"
    )
    assert _load(code) < 0.5


def test_the_module_and_the_installed_program_are_the_same() -> None:
    program = Path(sys.executable).parent / "culver"
    by_name = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    as_module = subprocess.run(
        [sys.executable, "-m", "culver", "--version"], capture_output=True, text=True, check=True
    )
    assert by_name.stdout == as_module.stdout == f"culver {__version__}\n"
