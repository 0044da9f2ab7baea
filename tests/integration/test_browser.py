"""A real browser with pages of other origins: an allowed one uses the whole API, another one nothing of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from support.browser import find_browser, open_page
from support.fake_site import FakeSite
from support.gateway import gateway_settings, run, served
from support.service import free_port

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow(seconds=5)]

# Each step tells "yes" and what it got, or "no"; the page reports to the server that it came from.
PAGE = """<!doctype html><body>FRAME<script>
const SITE = "http://127.0.0.1:PORT", JSON_TYPE = {"Content-Type": "application/json"};
const attempt = async step => { try { return await step(); } catch (error) { return "no"; } };
const publish = n => fetch(SITE + "/v1/events", {method: "POST", headers: JSON_TYPE, body: JSON.stringify({n})});
const steps = {
  read: async () => (await (await fetch(SITE + "/healthz")).json()).status,
  publish: async () => (await (await publish(1)).json()).accepted,
  problem: async () => (await (await fetch(SITE + "/nothing")).json()).code,
  replace: async () => (await fetch(SITE + "/v1/subscriptions/kept",
    {method: "PUT", headers: JSON_TYPE, body: '{"filter": "n > 5"}'})).status,
  elsewhere: async () => { const answer = await fetch(SITE + "/v1/subscriptions/away/events");
    return [answer.status, (await answer.json()).url]; },
  events: () => new Promise((done, failed) => {
    const source = new EventSource(SITE + "/v1/stream?filter=n%20%3D%207");
    source.onerror = failed;
    source.addEventListener("subscribed", () => publish(7));
    source.addEventListener("event", event => { source.close(); done(JSON.parse(event.data).event.n); });
  }),
  websocket: () => new Promise((done, failed) => {
    const socket = new WebSocket("ws://127.0.0.1:PORT/v1/ws");
    socket.onerror = failed;
    socket.onopen = () => socket.send('{"op": "ping"}');
    socket.onmessage = message => { socket.close(); done(JSON.parse(message.data).op); };
  }),
};
(async () => {
  const results = {};
  for (const [name, step] of Object.entries(steps)) results[name] = await attempt(step);
  await fetch("/result", {method: "POST", body: JSON.stringify(results)});
})();
</script></body>"""


class PageServer:
    """Serves the page on an origin of its own, and takes its report."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.page = ""
        self.result: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def show(self, _: Request) -> Response:
        return HTMLResponse(self.page)

    async def take(self, request: Request) -> Response:
        self.result.set_result(json.loads(await request.body()))
        return Response()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        routes = [Route("/", self.show), Route("/result", self.take, methods=["POST"])]
        config = uvicorn.Config(Starlette(routes=routes), port=self.port, log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve())
        try:
            yield
        finally:
            server.should_exit = True
            await task


def test_an_allowed_page_uses_the_api_and_a_foreign_one_does_not() -> None:
    program = find_browser()

    async def scenario() -> None:
        allowed, foreign = PageServer(free_port()), PageServer(free_port())
        origins = f"http://127.0.0.1:{allowed.port}"
        site = FakeSite(gateway_settings(allowed_origins=origins))
        site.ports["away"] = 8082
        async with served(site) as server, allowed.running(), foreign.running():
            page = PAGE.replace("PORT", str(server.port))
            foreign.page = page.replace("FRAME", "")
            frame = f'<iframe src="http://127.0.0.1:{foreign.port}/"></iframe>'
            allowed.page = page.replace("FRAME", frame)
            async with asyncio.timeout(90):
                with open_page(program, f"http://127.0.0.1:{allowed.port}/"):
                    assert await allowed.result == {
                        "read": "ok",
                        "publish": 1,
                        "problem": "not_found",
                        "replace": 404,
                        "elsewhere": [307, "http://127.0.0.1:8082"],
                        "events": 7,
                        "websocket": "pong",
                    }
                    assert set((await foreign.result).values()) == {"no"}
        assert [event.data["n"] for event in site.events] == [1, 7]

    run(scenario())
