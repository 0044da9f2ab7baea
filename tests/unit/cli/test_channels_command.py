"""The options of `culver channels`, and what it says when no service answers."""

from pathlib import Path

import pytest

from culver.cli import main
from support.service import free_port


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--servers", "4", "--max-servers", "2"], "--max-servers must not be less than --servers"),
        (["--host", "0.0.0.0"], "the address by which clients reach the servers"),
        (["--host", "192.0.2.1"], "--password must protect servers"),
        (["--host", "example"], "--host must be an IP address"),
        (["--username", "alice"], "--username is for servers that others run"),
        (["--server", "redis://127.0.0.1:1", "--servers", "2"], "leave out --servers"),
        (["--server", "http://127.0.0.1:1"], "is not the address of a server"),
        (["--server", "redis://127.0.0.1:1", "--server", "redis://127.0.0.1:1"], "give every server once"),
    ],
)
def test_serve_refuses_options_that_contradict_each_other(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "channels"
    assert main(["channels", "serve", "--port", "0", "--data-dir", str(folder), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize("command", [["pub", "news", "x"], ["sub", "news"], ["plan"], ["top", "--once"]])
def test_commands_say_in_one_line_that_no_service_answers(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["channels", *command, "--url", url]) == 1
    said = capsys.readouterr().err
    assert f"no channel service answers at {url}" in said
    assert "culver channels serve" in said
    assert said.count("\n") == 1


def test_the_environment_names_the_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("CULVER_CHANNELS_URL", url)
    assert main(["channels", "plan"]) == 1
    assert url in capsys.readouterr().err
