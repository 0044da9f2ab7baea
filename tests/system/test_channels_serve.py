"""`culver channels` as its user sees it: real commands, from the first line that they print to the last signal."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from support.service import free_port

pytestmark = pytest.mark.system

CULVER = [sys.executable, "-m", "culver", "channels"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CULVER_CHANNELS")}


class ServedChannels:
    """A running `culver channels serve`; its processes are ended with the test, whatever happens."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.folder = folder
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}"
        command = [*CULVER, "serve", "--port", str(self.port), "--data-dir", str(folder), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )

    def printed_lines(self) -> list[str]:
        """Everything up to the last line of the start."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if "Ctrl-C" in line:
                return lines
        raise AssertionError(f"it ended: {lines} {self.process.communicate()}")

    def processes(self) -> list[psutil.Process]:
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    def server_processes(self) -> list[psutil.Process]:
        records = json.loads((self.folder / "servers.json").read_text())["servers"]
        return [psutil.Process(record["pid"]) for record in records]


@contextlib.contextmanager
def served(folder: Path, *options: str, port: int | None = None) -> Iterator[ServedChannels]:
    channels = ServedChannels(folder, *options, port=port)
    try:
        yield channels
    finally:
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            for process in [*channels.processes(), *channels.server_processes()]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        channels.process.kill()
        channels.process.communicate()


def run(*arguments: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*CULVER, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENVIRONMENT,
    )


@contextlib.contextmanager
def subscriber(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A subscriber that the servers have confirmed."""
    process = subprocess.Popen(
        [*CULVER, "sub", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        try:
            assert process.stderr is not None
            assert "listening" in process.stderr.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_printed_lines_show_a_message_arriving_and_a_signal_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    with served(tmp_path / "channels") as channels:
        printed = channels.printed_lines()
        assert f"ready on {channels.url} (2 servers" in printed[0]
        lines = [line.strip() for line in printed if re.search(r"culver channels (sub|pub) ", line)]
        subscribe, publish = (shlex.split(line.partition(" channels ")[2]) for line in lines)
        with subscriber(*subscribe[1:], "--count", "1") as listening:
            published = run(*publish)
            assert (published.returncode, published.stderr) == (0, "published to 1 subscriber\n")
            received, _ = listening.communicate(timeout=60)
        assert received == "news: hello\n"
        everything = channels.processes()
        assert len(everything) >= 5
        channels.process.send_signal(number)
        assert channels.process.wait(20) == 0
        _, alive = psutil.wait_procs(everything, timeout=5)
        assert not alive, alive
        assert json.loads((channels.folder / "servers.json").read_text())["servers"] == []


def test_lines_of_standard_input_arrive_once_and_in_order(tmp_path: Path) -> None:
    with served(tmp_path / "channels") as channels:
        channels.printed_lines()
        url = ("--url", channels.url)
        lines = [f"line {number}" for number in range(3_000)]
        with subscriber("log.*", "--pattern", "--count", str(len(lines)), "--json", *url) as listening:
            published = run("pub", "log.app", "-", *url, text="\n".join(lines))
            assert published.stderr == "published 3,000 messages\n"
            received, _ = listening.communicate(timeout=60)
        records = [json.loads(line) for line in received.splitlines()]
        assert [record["data"] for record in records] == lines
        assert records[0] == {
            "type": "pmessage",
            "channel": "log.app",
            "pattern": "log.*",
            "data": "line 0",
        }


def test_ctrl_c_ends_pub_and_sub_and_says_how_much_was_published(tmp_path: Path) -> None:
    with served(tmp_path / "channels", "--servers", "1") as channels:
        channels.printed_lines()
        with (
            subscriber("log", "--url", channels.url) as listening,
            subprocess.Popen(
                [*CULVER, "pub", "log", "-", "--url", channels.url],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
            ) as publishing,
        ):
            assert publishing.stdin is not None
            assert publishing.stderr is not None
            assert listening.stdout is not None
            publishing.stdin.write("one\ntwo\n")
            publishing.stdin.flush()
            assert [listening.stdout.readline() for _ in range(2)] == ["log: one\n", "log: two\n"]
            for process in (publishing, listening):
                process.send_signal(signal.SIGINT)
                assert process.wait(10) == 130
            assert publishing.stderr.readline() == "published 2 messages\n"


def test_a_killed_server_is_started_again_and_subscribers_go_on(tmp_path: Path) -> None:
    with served(tmp_path / "channels", "--servers", "1") as channels:
        channels.printed_lines()
        url = ("--url", channels.url)
        with subscriber("news", "--count", "2", *url) as listening:
            assert run("pub", "news", "before", *url).returncode == 0
            (server,) = channels.server_processes()
            server.kill()
            server.wait(10)
            _wait_until(lambda: _status(channels)["server_restarts"] == 1)
            _publish_until_received(channels, "after")
            received, _ = listening.communicate(timeout=60)
        assert received == "news: before\nnews: after\n"


def test_subscribers_survive_a_stop_and_a_new_start_of_the_service(tmp_path: Path) -> None:
    port = free_port()
    with served(tmp_path / "channels", port=port) as channels:
        channels.printed_lines()
        with subscriber("news", "--count", "1", "--url", channels.url) as listening:
            channels.process.terminate()
            assert channels.process.wait(20) == 0
            with served(tmp_path / "channels", port=port) as again:
                again.printed_lines()
                _publish_until_received(again, "hello")
                received, _ = listening.communicate(timeout=60)
    assert received == "news: hello\n"


def test_plan_and_top_and_metrics_show_the_servers_and_nothing_under_a_foreign_name(tmp_path: Path) -> None:
    with served(tmp_path / "channels", "--allow-host", "channels.example") as channels:
        channels.printed_lines()
        for host, status in (("evil.example", 403), ("channels.example:80", 200)):
            answer = httpx.get(f"{channels.url}/v1/channels/servers", headers={"Host": host}, trust_env=False)
            assert answer.status_code == status
        plan = run("plan", "--json", "--url", channels.url)
        assert [server["state"] for server in json.loads(plan.stdout)["servers"]] == ["up", "up"]
        assert "No channel has an entry" in run("plan", "--url", channels.url).stdout
        assert "Nobody has published" in run("top", "--once", "--url", channels.url).stdout
        metrics = httpx.get(f"{channels.url}/metrics", trust_env=False).text
        assert "culver_channels_servers 2.0" in metrics


def test_a_missing_or_wrong_password_ends_a_command_with_a_reason(tmp_path: Path) -> None:
    with served(tmp_path / "channels", "--servers", "1", "--password", "swordfish") as channels:
        assert "CULVER_CHANNELS_PASSWORD" in "\n".join(channels.printed_lines())
        url = ("--url", channels.url)
        for command in (("pub", "news", "hello"), ("sub", "news", "--password", "guess")):
            refused = run(*command, *url)
            assert refused.returncode == 1
            assert "password" in refused.stderr
            assert refused.stderr.count("\n") == 1
        assert run("pub", "news", "hello", "--password", "swordfish", *url).returncode == 0


def test_given_servers_of_which_none_answers_are_refused(tmp_path: Path) -> None:
    done = run(
        "serve", "--server", f"redis://127.0.0.1:{free_port()}", "--port", "0", "--data-dir", str(tmp_path)
    )
    assert done.returncode == 1
    assert "no connection to redis://127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_service_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with served(tmp_path / "channels") as channels:
        channels.printed_lines()
        second = run("serve", "--port", "0", "--data-dir", str(channels.folder))
        assert second.returncode == 1
        assert "another process runs the servers" in second.stderr


def _status(channels: ServedChannels) -> dict[str, int]:
    status: dict[str, int] = httpx.get(f"{channels.url}/v1/channels/plan", trust_env=False).json()
    return status


def _wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"this has not happened within {seconds:g} s")


def _publish_until_received(channels: ServedChannels, message: str) -> None:
    """Publishes until the subscriber is back: a server keeps nothing for those who are not subscribed."""
    _wait_until(lambda: "to 1 subscriber" in run("pub", "news", message, "--url", channels.url).stderr)
