"""How a process of a site runs: repeated work, its limit of open files, and the watch over its event loop."""

import subprocess
import sys

import pytest

from culver import process_setup
from culver.process_setup import repeated
from support.gateway import run
from support.until import until


def test_work_that_fails_is_logged_and_done_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_setup, "_PAUSE_SECONDS", 0.001)
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise OSError("the disk is full")

    async def scenario() -> None:
        async with repeated(work, first_after_seconds=0):
            await until(lambda: rounds >= 3)
        ended = rounds
        await until(lambda: True)
        assert rounds == ended

    run(scenario())
    assert "housekeeping failed and is tried again" in caplog.text


def test_a_process_may_open_as_many_files_as_the_system_grants_it_and_keeps_some_for_files() -> None:
    program = """if True:
        import resource
        from culver.process_setup import free_handles, raise_file_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 400))
        print(free_handles())
        raise_file_limit()
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], free_handles())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, limit, after = map(int, done.stdout.split())
    assert limit == 400
    assert 20 < before <= 100 - 64
    assert after == before + 300 - (100 - 64)


@pytest.mark.slow(seconds=1)
def test_a_loop_that_stands_still_is_told_of_with_the_place_where_it_hangs() -> None:
    program = """if True:
        import asyncio, sys, time
        from culver.process_setup import run_process
        async def main():
            await asyncio.sleep(4)
            print("busy from now on", file=sys.stderr, flush=True)
            hang()
            return 3
        def hang():
            time.sleep(3)
        raise SystemExit(run_process(main(), stall_seconds=2.0))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    before, _, after = done.stderr.partition("busy from now on\n")
    assert before == ""
    assert "Timeout" in after
    assert "in hang\n" in after
