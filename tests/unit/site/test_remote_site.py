"""Slices through a further gateway: the site does it, and its refusals arrive."""

import asyncio
import socket

import pytest

from culver.errors import NotFound
from culver.site.peer import Peer
from culver.site.remote_site import RemoteSlices
from support.gateway import run
from support.memory_slices import MemorySlices


def test_slices_are_changed_through_any_gateway() -> None:
    async def scenario() -> None:
        here = MemorySlices()
        site = Peer({"add_slice": here.add, "remove_slice": here.remove}, lambda message: None)
        gateway = Peer({}, lambda message: None)
        ends = socket.socketpair()
        await site.connect(ends[0])
        await gateway.connect(ends[1])
        there = RemoteSlices(gateway)
        try:
            assert await there.add(1) == here.view()
            assert [len(points) for points in here.lists] == [100, 15, 15]
            assert await there.remove(0) == here.view()
            with pytest.raises(NotFound, match="there are 0 to 1"):
                await there.remove(2)
        finally:
            gateway.close()
            site.close()
            await asyncio.gather(gateway.lost.wait(), site.lost.wait())

    run(scenario())
