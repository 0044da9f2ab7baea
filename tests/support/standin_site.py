"""A stand-in for a site, started as a process of its own: it speaks enough of the API to be measured.

It takes the flags of `culver serve`; the engine's name chooses how it behaves:

    prompt      delivers at once
    delaying    delivers each event 50 ms later
    stalling    stops for 300 ms at the 20th event
    losing      never delivers event 7
    gapping     announces a gap in place of event 7
    refusing    answers publications with an error
    closing     closes the connection at event 7
    crashing    ends before it is ready
    starting    is never ready
    deaf        ignores the request to stop
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

DELAY_SECONDS = 0.05
STALL_SECONDS = 0.3
PENDING = 3  # deliveries in every mailbox
LAG = 200  # events that every look at the status finds delivered


class StandIn:
    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self.next_offset = 0
        self.delivered_offset = 0
        self.filters: list[str] = []
        self.subscribers: list[WebSocket] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def ready(self, _: Request) -> JSONResponse:
        self.delivered_offset = min(self.next_offset, self.delivered_offset + LAG)
        status = {
            "engine": self.behaviour,
            "ready": self.behaviour != "starting",
            "log_next_offset": self.next_offset,
            "delivered_offset": self.delivered_offset,
            "subscriptions": len(self.filters),
        }
        return JSONResponse(status, 503 if self.behaviour == "starting" else 200)

    async def subscriptions(self, request: Request) -> JSONResponse:
        if request.method == "POST":
            asked = await request.json()
            if any("filter" not in one for one in asked):
                return JSONResponse({"code": "invalid_request", "detail": "no filter"}, 400)
            self.filters += [one["filter"] for one in asked]
            answers = [{"id": str(i), "since": 0} for i in range(len(asked))]
            return JSONResponse({"subscriptions": answers}, 201)
        start, limit = int(request.query_params.get("after", 0)), int(request.query_params["limit"])
        end = min(start + limit, len(self.filters))
        page = [{"id": str(i), "pending": PENDING} for i in range(start, end)]
        return JSONResponse({"subscriptions": page, "next": str(end) if end < len(self.filters) else None})

    async def socket(self, websocket: WebSocket) -> None:
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await self.handle(websocket, await websocket.receive_json())
        if websocket in self.subscribers:
            self.subscribers.remove(websocket)

    async def handle(self, websocket: WebSocket, message: dict[str, Any]) -> None:
        if message["op"] == "subscribe":
            self.subscribers.append(websocket)
            answer = {"op": "subscribed", "ref": message["ref"], "subscription": "live-1", "since": 0}
            await websocket.send_json(answer)
            return
        if self.behaviour == "refusing":
            await websocket.send_json({"op": "error", "code": "storage_full", "detail": "the disk is full"})
            return
        first, events = self.next_offset, message["events"]
        self.next_offset += len(events)
        answer = {
            "op": "published",
            "ref": message["ref"],
            "first_offset": first,
            "next_offset": self.next_offset,
        }
        await websocket.send_json(answer)
        if self.subscribers:
            delivering = asyncio.create_task(self.deliver(first, events))
            self.tasks.add(delivering)
            delivering.add_done_callback(self.tasks.discard)

    async def deliver(self, first: int, events: list[dict[str, Any]]) -> None:
        numbers = [event["bench_sequence"] for event in events]
        if self.behaviour == "delaying":
            await asyncio.sleep(DELAY_SECONDS)
        if self.behaviour == "stalling" and 20 in numbers:
            time.sleep(STALL_SECONDS)  # noqa: ASYNC251  the whole site stalls, that is the point
        for subscriber in self.subscribers:
            if 7 in numbers and self.behaviour == "closing":
                await subscriber.close(1012)
                return
            if 7 in numbers and self.behaviour == "gapping":
                gap = {"start": 7, "end": 8, "dropped": 1, "reason": "overflow"}
                await subscriber.send_json({"op": "gap", "to": ["live-1"], **gap})
            kept = [event for event in events if self.behaviour != "losing" or event["bench_sequence"] != 7]
            sent = [{"offset": first + i, "event": event, "to": ["live-1"]} for i, event in enumerate(kept)]
            await subscriber.send_text(json.dumps({"op": "events", "events": sent}))


class DeafServer(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("--engine", "--host", "--port", "--data-dir"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    directory = Path(options.data_dir)
    directory.mkdir(parents=True)
    # As a site has children too: it is up to the one that started the site that none outlives it.
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    (directory.parent / "child.pid").write_text(str(child.pid))
    if options.engine == "crashing":
        child.kill()
        sys.exit("the stand-in crashes on purpose")
    stand_in = StandIn(options.engine)
    app = Starlette(
        routes=[
            Route("/readyz", stand_in.ready),
            Route("/v1/subscriptions", stand_in.subscriptions, methods=["GET", "POST"]),
            WebSocketRoute("/v1/ws", stand_in.socket),
        ]
    )
    config = uvicorn.Config(app, options.host, int(options.port), log_level="warning", ws="websockets-sansio")
    server = DeafServer(config) if options.engine == "deaf" else uvicorn.Server(config)
    asyncio.run(server.serve())


if __name__ == "__main__":
    main()
