"""Who hears that a server refuses a client: the caller that waits for it, or the log, and not both."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from culver.channels import core_runner
from culver.channels.core.instructions import Connect, Instruction, ServerLink
from culver.channels.core_runner import CoreRunner
from culver.channels.servers.redis_address import ServerAccess
from culver.channels.servers.redis_link import LinkSettings
from culver.errors import ServerAccessDenied


class UnwelcomeLink:
    """A link to a server that wants another password."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def connect(self) -> None:
        raise ServerAccessDenied("another password is needed")


class PatientCore:
    """Wants nothing, and remembers that a link could not be opened."""

    def __init__(self) -> None:
        self.failed = asyncio.Event()

    def connected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        return []

    def disconnected(self, server: int, link: ServerLink, now: float) -> list[Instruction]:
        self.failed.set()
        return []

    def pushed(self, server: int, link: ServerLink, push: Sequence[bytes], now: float) -> list[Instruction]:
        return []

    def tick(self, now: float) -> list[Instruction]:
        return []


@pytest.mark.parametrize(
    ("a_publication_fails", "waits_for", "logged"),
    [(False, None, True), (True, None, False), (False, 1, False), (False, 2, True)],
)
def test_refusal_is_logged_only_where_nobody_gets_it_as_an_error(
    a_publication_fails: bool,
    waits_for: int | None,
    logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        core = PatientCore()
        runner = CoreRunner(
            core,
            lambda server: "redis://127.0.0.1:1",
            lambda instruction: None,
            access=ServerAccess(),
            settings=LinkSettings(),
            name="test",
            on_refused=lambda server, link, reason: a_publication_fails,
        )
        opening: list[asyncio.Task[None]] = []
        if waits_for is not None:
            servers = [waits_for]
            opening.append(asyncio.create_task(runner.wait_open(ServerLink.SUBSCRIBE, lambda: servers)))
            await asyncio.sleep(0)
        runner.run([Connect(1, ServerLink.SUBSCRIBE)])
        await core.failed.wait()
        for task in opening:
            if waits_for == 1:
                with pytest.raises(ServerAccessDenied):
                    await task
            task.cancel()
        await runner.close()

    monkeypatch.setattr(core_runner, "RedisLink", UnwelcomeLink)
    asyncio.run(scenario())
    assert ("another password is needed" in caplog.text) is logged
