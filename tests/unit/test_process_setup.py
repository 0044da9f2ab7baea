"""Housekeeping is repeated, whatever happens to one round."""

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
