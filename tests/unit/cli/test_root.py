import os
import re
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("publish", "there is no command 'publish'; did you mean pub?\nTry: culver --help"),
        ("sbu", "there is no command 'sbu'; did you mean sub?\nTry: culver --help"),
        (
            "xyzzy",
            "there is no command 'xyzzy'; known: serve, setup, pub, sub, log, subs, top, slices, overlay, rescue, "
            "filter, channels, cluster, demo, bench\nTry: culver --help",
        ),
        ("subs lst", "there is no command 'lst'; did you mean list?\nTry: culver subs --help"),
        ("filter xyzzy", "there is no command 'xyzzy'; known: explain, test\nTry: culver filter --help"),
        ("bench matchin", "there is no command 'matchin'; did you mean matching?\nTry: culver bench --help"),
        (
            "sub --cuont 5",
            "No such option '--cuont'. (Did you mean one of: '--count', '--json'?)\nTry: culver sub --help",
        ),
    ],
)
def test_what_there_is_not_is_refused_with_what_is_near(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr().err == f"culver: {message}\n"


def test_a_setting_that_there_is_not_is_refused_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "culver.toml"
    file.write_text("[gateway]\nprot = 8080\n")
    assert main(["serve", "--config", str(file)]) == 2
    assert "unknown setting 'gateway.prot'" in (error := capsys.readouterr().err)
    assert error.endswith("did you mean gateway.port?\n")
    monkeypatch.setenv("CULVER_GATEWAY_PROT", "8080")
    assert main(["serve"]) == 2
    assert capsys.readouterr().err.endswith("did you mean CULVER_GATEWAY_PORT?\n")


def test_sub_without_a_filter_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith('culver: there is no filter; give one, as in\n  culver sub "price > 20"\n')
    assert "TRUE for every event" in shown


def test_the_lines_of_the_manual_that_start_a_cluster_and_a_site_on_it_agree_on_the_port() -> None:
    context = click.Context(culver, info_name="culver")
    command = culver.get_command(context, "cluster")
    assert command is not None
    page = Path(__file__).parents[3] / "docs" / "cluster.md"
    for text in (page.read_text(encoding="utf-8"), command.help or ""):
        lines = re.search(
            r"culver cluster up(.*)\n *culver serve --spark-master spark://127.0.0.1:(\d+)\n", text
        )
        assert lines is not None
        assert f"--port {lines[2]}" in lines[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_without_loading_them_and_options(shell: str) -> None:
    def completed(line: str) -> "subprocess.CompletedProcess[str]":
        *before, last = line.split()
        place = last if shell == "fish" else str(len(before))
        words = {"_CULVER_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": place}
        return subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "culver"],
            env={**os.environ, **words},
            check=True,
            capture_output=True,
            text=True,
        )

    commands = completed("culver sub")
    assert set(re.findall(r"\bsubs?\b", commands.stdout)) >= {"sub", "subs"}
    assert "culver.cli.commands" not in commands.stderr
    assert "--dry-run" in completed("culver subs load --dry").stdout


def test_the_manual_s_lines_for_completion_print_a_script() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    lines = re.findall(r"_CULVER_COMPLETE=(\w+) culver", page)
    assert sorted(lines) == ["bash_source", "fish_source", "zsh_source"]
    for line in lines:
        done = subprocess.run(
            [sys.executable, "-m", "culver"],
            env={**os.environ, "_CULVER_COMPLETE": line},
            check=True,
            capture_output=True,
            text=True,
        )
        assert "_CULVER_COMPLETE=" in done.stdout


@pytest.mark.parametrize(("variable", "coloured"), [("", True), ("1", False)])
def test_errors_and_warnings_are_coloured_on_terminals_only(variable: str, coloured: bool) -> None:
    code = (
        "from culver.cli import main; main(['xyzzy']); from culver.cli.failures import warn; warn('beware')"
    )
    environment = {**os.environ, "NO_COLOR": variable, "TERM": "xterm"}
    terminal, device = os.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], env=environment, stderr=device, check=True)
        shown = os.read(terminal, 4096).decode()
    finally:
        os.close(device)
        os.close(terminal)
    assert ("\x1b[31mculver:\x1b[0m there is no command" in shown) is coloured
    assert ("\x1b[33mculver:\x1b[0m warning: beware" in shown) is coloured
    piped = subprocess.run(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, check=True, text=True
    )
    assert "\x1b" not in piped.stderr
    assert piped.stderr.endswith("culver: warning: beware\n")


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
