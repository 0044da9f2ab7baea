"""The options of `culver channels`, and what it says when no service answers."""

from pathlib import Path

import pytest

from culver.cli import main
from culver.cli.exposure_warnings import warnings_of_channels
from support.service import free_port


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--servers", "4", "--max-servers", "2"], "--max-servers must not be less than --servers"),
        (["--host", "0.0.0.0"], "the address by which clients reach the servers"),
        (["--host", "192.0.2.1"], "--password must protect servers"),
        (["--host", "example"], "--host must be an IP address"),
        (["--username", "alice"], "--username is for servers that others run"),
        (["--server", "redis://127.0.0.1:1", "--servers", "2"], "must not be more than the 1 of --server"),
        (["--server", "redis://127.0.0.1:1", "--max-servers", "2"], "leave out --max-servers"),
        (["--server", "redis://127.0.0.1:1?price=free"], "the price must be a positive number, not 'free'"),
        (["--server", "redis://127.0.0.1:1?prize=2"], "unknown prize"),
        (
            ["--server", "redis://127.0.0.1:1", "--tls-ca", "x"],
            "write rediss:// in --server, or leave out --tls-ca",
        ),
        (
            ["--server", "rediss://127.0.0.1:1", "--tls-ca", "nowhere.pem"],
            "--tls-ca nowhere.pem cannot be read",
        ),
        (["--server", "rediss://127.0.0.1:1", "--tls-cert", "x"], "--tls-key is missing"),
        (["--tls-ca", "x"], "all of --tls-ca, --tls-cert and --tls-key"),
        (["--tls-ca", "x", "--tls-cert", "y", "--tls-key", "z"], "--tls-ca x cannot be read"),
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


@pytest.mark.parametrize("command", [["pub", "news", "x"], ["sub", "news"]])
def test_certificate_file_that_is_missing_is_named_in_one_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CULVER_CHANNELS_TLS_CA", "nowhere.pem")
    assert main(["channels", *command]) == 2
    assert (
        capsys.readouterr().err == "culver: --tls-ca nowhere.pem cannot be read: No such file or directory\n"
    )


def test_the_environment_names_the_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("CULVER_CHANNELS_URL", url)
    assert main(["channels", "plan"]) == 1
    assert url in capsys.readouterr().err


def test_a_service_that_other_machines_reach_is_warned_of() -> None:
    assert list(warnings_of_channels("127.0.0.1")) == []
    [warning] = warnings_of_channels("10.0.0.5")
    assert "at 10.0.0.5" in warning
    assert "the secret that signs the plan" in warning
