"""How often a client reports what it has published."""

from itertools import pairwise
from random import Random

import msgspec
import pytest

from culver.channels.core.channel_load import ClientLoadReport
from culver.channels.core.channel_plan import Ring, ServerAddress
from culver.channels.core.client_core import ClientCore
from culver.channels.core.instructions import Instruction, Send, ServerLink
from culver.channels.core.reserved_names import LOAD_CHANNEL


class BusyServer:
    """Answers every publication at once, with so many receivers, and keeps the reports that have publications."""

    def __init__(self, receivers: int) -> None:
        ring = Ring(1, (ServerAddress(1, "redis://127.0.0.1:1"),), (1,))
        self.core = ClientCore(5, ring, b"secret", Random(1))
        self._receivers = receivers
        self.reports: list[tuple[float, int]] = []
        self._run(self.core.connected(1, ServerLink.PUBLISH, 0.0), 0.0)

    def publish_every_tenth(self, seconds: int) -> None:
        for step in range(10 * seconds + 1):
            now = step / 10
            self._run(self.core.publish(b"c", b"payload", now)[1], now)
            self._run(self.core.tick(now), now)

    def _run(self, instructions: list[Instruction], now: float) -> None:
        for instruction in instructions:
            if not isinstance(instruction, Send):
                continue
            if instruction.command[:2] == (b"PUBLISH", LOAD_CHANNEL):
                report = msgspec.msgpack.decode(instruction.command[2], type=ClientLoadReport)
                self.reports += [(now, use.publications) for use in report.channels]
            if instruction.then is not None:
                reply = self._receivers if instruction.command[0] == b"PUBLISH" else [b"", None]
                self._run(instruction.then(reply, now), now)


@pytest.mark.parametrize(("receivers", "apart"), [(100, 1.0), (2, 3.0)])
def test_a_client_whose_messages_are_little_work_reports_less_often(receivers: int, apart: float) -> None:
    server = BusyServer(receivers)
    server.publish_every_tenth(seconds=20)
    times = [now for now, _ in server.reports]
    assert len(times) >= 6
    assert {round(later - earlier, 1) for earlier, later in pairwise(times)} == {apart}
    assert all(count == pytest.approx(10 * apart, abs=1) for _, count in server.reports[1:])
