"""Server processes of a pool: what they run with, how they fail to start, and who takes over from a killed owner."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import culver
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings, ServerCertificate
from culver.channels.servers.redis_link import RedisLink
from culver.channels.servers.server_pool import PoolState
from culver.errors import Conflict, InvalidConfiguration, NotFound, ServerNotStarted
from support.redis_servers import PROGRAMS, make_certificate
from support.until import until

VALKEY = LocalServerSettings(program=PROGRAMS["valkey"])

OWNER = """
import asyncio, sys
from pathlib import Path
from culver.channels.servers.local_servers import LocalServers, LocalServerSettings

async def main():
    settings = LocalServerSettings(program=Path(sys.argv[2]), password="hidden")
    async with LocalServers(Path(sys.argv[1]), settings) as servers:
        for _ in range(2):
            server = await servers.start()
            print(server.url, servers.process_id(server.number), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(params=list(PROGRAMS))
def program(request: pytest.FixtureRequest) -> Path:
    path = PROGRAMS[request.param]
    assert path is not None
    return path


@contextlib.contextmanager
def owner_process(folder: Path, program: Path) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """Another process that runs two servers, and what it says about each."""
    source = Path(culver.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, folder, program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    ) as owner:
        try:
            assert owner.stdout is not None
            yield owner, [owner.stdout.readline(), owner.stdout.readline()]
        finally:
            owner.kill()


def processes_of(folder: Path) -> list[int]:
    """The server processes that run in a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ended = process.status() == psutil.STATUS_ZOMBIE
            if not ended and "server" in process.name() and process.cwd() == str(folder):
                found.append(process.pid)
    return sorted(found)


def test_servers_keep_nothing_on_disk_and_show_their_password_to_nobody(
    tmp_path: Path, program: Path
) -> None:
    settings = LocalServerSettings(
        program=program, password="hidden", max_clients=77, output_buffer_bytes=4096
    )

    async def scenario() -> None:
        async with LocalServers(tmp_path, settings) as servers:
            server = await servers.start()
            assert "hidden" not in " ".join(psutil.Process(servers.process_id(1)).cmdline())
            assert stat.S_IMODE((tmp_path / "server-1.conf").stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / "server-1.log").stat().st_mode) == 0o600
            async with RedisLink(server.url, access=servers.access(1)) as link:
                for name, value in (
                    (b"save", b""),
                    (b"appendonly", b"no"),
                    (b"maxclients", b"77"),
                    (b"bind", b"127.0.0.1"),
                ):
                    assert await link.request((b"CONFIG", b"GET", name)) == {name: value}
                limits = await link.request((b"CONFIG", b"GET", b"client-output-buffer-limit"))
                assert isinstance(limits, dict)
                assert b"pubsub 4096 2048 10" in limits[b"client-output-buffer-limit"]
            assert "hidden" not in repr(settings)

    asyncio.run(scenario())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "server-1.log", "servers.json"]


def test_leaving_the_pool_stops_all_servers_even_those_that_hang_or_have_crashed(
    tmp_path: Path, program: Path
) -> None:
    settings = LocalServerSettings(program=program, stop_seconds=0.2)

    async def scenario() -> None:
        async with LocalServers(tmp_path, settings) as servers:
            await asyncio.gather(*(servers.start() for _ in range(3)))
            assert len(processes_of(tmp_path)) == 3
            os.kill(servers.process_id(1), signal.SIGSTOP)
            os.kill(servers.process_id(2), signal.SIGKILL)
            await until(lambda: servers.crashed() == {2})
        assert processes_of(tmp_path) == []

    asyncio.run(scenario())


def test_servers_of_a_killed_owner_run_on_and_are_adopted(tmp_path: Path, program: Path) -> None:
    with owner_process(tmp_path, program) as (owner, said):
        owner.kill()
        owner.wait()

    async def scenario() -> None:
        pids = [int(line.split()[1]) for line in said]
        assert processes_of(tmp_path) == sorted(pids)
        settings = LocalServerSettings(program=program, password="hidden")
        async with LocalServers(tmp_path, settings) as servers:
            assert [server.url for server in servers.servers] == [line.split()[0] for line in said]
            assert servers.crashed() == frozenset()
            for server in servers.servers:
                async with RedisLink(server.url, access=servers.access(server.number)) as link:
                    assert await link.request((b"PING",)) == b"PONG"
            os.kill(servers.process_id(1), signal.SIGKILL)
            await until(lambda: servers.crashed() == {1})
            await servers.restart(1)
            assert servers.process_id(1) not in pids
            await servers.stop(2)
            assert processes_of(tmp_path) == [servers.process_id(1)]
            assert (await servers.start()).number == 3
        assert processes_of(tmp_path) == []

    asyncio.run(scenario())


def test_server_that_its_killed_owner_had_no_time_to_write_down_is_adopted_by_its_port(
    tmp_path: Path, program: Path
) -> None:
    with owner_process(tmp_path, program) as (owner, _):
        owner.kill()
        owner.wait()
    state = tmp_path / "servers.json"
    state.write_text(state.read_text().replace('"pid":', '"pid":0,"was":'))

    async def scenario() -> None:
        async with LocalServers(tmp_path, LocalServerSettings(program=program, password="hidden")) as servers:
            assert servers.crashed() == frozenset()
            assert processes_of(tmp_path) == sorted(map(servers.process_id, (1, 2)))
        assert processes_of(tmp_path) == []

    asyncio.run(scenario())


def test_server_that_ended_with_its_owner_counts_as_crashed_and_no_other_process_is_touched(
    tmp_path: Path, program: Path
) -> None:
    with owner_process(tmp_path, program) as (owner, said):
        owner.kill()
        owner.wait()
    pid = int(said[0].split()[1])
    os.kill(pid, signal.SIGKILL)

    async def scenario() -> None:
        await until(lambda: pid not in processes_of(tmp_path))
        state = tmp_path / "servers.json"
        # The process id of the ended server now belongs to somebody else: this process.
        state.write_text(state.read_text().replace(f'"pid":{pid}', f'"pid":{os.getpid()}'))
        settings = LocalServerSettings(program=program, password="hidden")
        async with LocalServers(tmp_path, settings) as servers:
            assert servers.crashed() == {1}
            assert servers.process_id(1) == 0
            await servers.restart(1)
            assert servers.crashed() == frozenset()

    asyncio.run(scenario())


def test_restart_says_who_has_the_port_and_works_when_it_is_free_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalServers(tmp_path, VALKEY) as servers:
            server = await servers.start()
            os.kill(servers.process_id(1), signal.SIGKILL)
            await until(lambda: servers.crashed() == {1})
            with socket.create_server(("127.0.0.1", int(server.url.rpartition(":")[2]))):
                with pytest.raises(ServerNotStarted, match="Address already in use"):
                    await servers.restart(1)
                assert servers.servers == (server,)
                assert servers.crashed() == {1}
            await servers.restart(1)
            assert servers.crashed() == frozenset()

    asyncio.run(scenario())


def test_start_takes_another_port_when_somebody_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            ports = [taken.getsockname()[1]]
            free = LocalServers._free_port
            monkeypatch.setattr(LocalServers, "_free_port", lambda pool: ports.pop() if ports else free(pool))
            async with LocalServers(tmp_path, VALKEY) as servers:
                server = await servers.start()
                assert servers.servers == (server,)
                assert server.number == 2

    asyncio.run(scenario())


def test_program_that_cannot_be_run_or_ends_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        for settings, says in (
            (LocalServerSettings(program=tmp_path / "missing"), "cannot be run: No such file"),
            (LocalServerSettings(program=Path("/bin/false")), "ended before it was ready"),
            (LocalServerSettings(program=VALKEY.program, options=(("nonsense", "1"),)), "Bad directive"),
            (LocalServerSettings(program=VALKEY.program, users=("ann nonsense >hidden",)), "Error in user"),
        ):
            async with LocalServers(tmp_path / "pool", settings) as servers:
                with pytest.raises(ServerNotStarted, match=says) as caught:
                    await servers.start()
                assert "hidden" not in str(caught.value)
                assert servers.servers == ()
                assert processes_of(tmp_path / "pool") == []

    asyncio.run(scenario())


def test_program_that_never_answers_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "sleeper-server"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)

    async def scenario() -> None:
        settings = LocalServerSettings(program=program, start_seconds=0.2)
        async with LocalServers(tmp_path / "pool", settings) as servers:
            with pytest.raises(ServerNotStarted, match=r"did not answer within 0.2 s"):
                await servers.start()
            assert servers.servers == ()

    asyncio.run(scenario())


def test_tls_without_support_in_the_program_is_named(tmp_path: Path, program: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    settings = LocalServerSettings(
        program=program, certificate=ServerCertificate(certificate, key, certificate), start_seconds=2.0
    )

    async def scenario() -> None:
        async with LocalServers(tmp_path / "pool", settings) as servers:
            try:
                server = await servers.start()
            except ServerNotStarted as error:
                failure = error.message
            else:
                async with RedisLink(server.url, access=servers.access(server.number)) as link:
                    assert await link.request((b"PING",)) == b"PONG"
                return
        assert "built without TLS" in failure

    asyncio.run(scenario())


def test_servers_that_a_killed_owner_ran_without_tls_are_not_taken_for_ones_with_it(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    state = PoolState(tmp_path / "pool", "local")
    state.add("redis://127.0.0.1:1")
    state.close()

    async def scenario() -> None:
        settings = LocalServerSettings(certificate=ServerCertificate(certificate, key, certificate))
        with pytest.raises(Conflict, match="run without TLS: start the service that way"):
            async with LocalServers(tmp_path / "pool", settings):
                pass

    asyncio.run(scenario())


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="not an IP address"):
        LocalServers(tmp_path, LocalServerSettings(host="some-host"))
    with pytest.raises(InvalidConfiguration, match="one line"):
        LocalServers(tmp_path, LocalServerSettings(users=("a on\nrequirepass x",)))


def test_stopping_twice_finds_nothing_the_second_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalServers(tmp_path, VALKEY) as servers:
            await servers.start()
            await servers.stop(1)
            with pytest.raises(NotFound):
                await servers.stop(1)

    asyncio.run(scenario())
