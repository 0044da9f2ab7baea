"""What operators and tools ask: health, readiness, metrics, the API's description and its page."""

from dataclasses import replace
from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from culver.gateway.api import openapi
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.gateway_context import gateway_of
from culver.gateway.metrics import gateway_metrics
from culver.gateway.redirection import url_of


async def health(request: Request) -> Response:
    """The process lives and its event loop turns."""
    return Response(encode({"status": "ok"}), media_type="application/json")


async def readiness(request: Request) -> Response:
    """200 while published events reach subscribers, otherwise 503; the site's status either way."""
    gateway = gateway_of(request)
    await gateway.site.observation.refresh()
    ready = gateway.site.observation.ready and not gateway.stopping
    document = {**gateway.site.observation.status(), "ready": ready}
    headers = None if ready else {"Retry-After": "1"}
    return Response(encode(document), 200 if ready else 503, headers, "application/json")


async def prometheus(request: Request) -> Response:
    gateway = gateway_of(request)
    await gateway.site.observation.refresh()
    return Response(gateway.metrics.render(), media_type=gateway_metrics.CONTENT_TYPE)


async def pipeline(request: Request) -> Response:
    """What each operator and each slice has done since the start, and what waits."""
    gateway = gateway_of(request)
    await gateway.site.observation.refresh()
    seen = gateway.site.observation.observe()
    seen = replace(seen, deliveries_sent=seen.deliveries_sent + gateway.metrics.deliveries_sent())
    return Response(encode(seen), media_type="application/json")


async def gateways(request: Request) -> Response:
    """The site's gateways, and what each of them has."""
    site = gateway_of(request).site
    await site.observation.refresh()
    members = [
        {
            "number": each.number,
            "url": url_of(request, each.port),
            "state": each.state,
            "subscriptions": each.subscriptions,
            "sessions": each.sessions,
        }
        for each in site.observation.observe().gateways
    ]
    return Response(encode({"gateways": members}), media_type="application/json")


async def describe(request: Request) -> Response:
    return Response(encode(openapi.document(gateway_of(request).settings)), media_type="application/json")


async def docs_page(request: Request) -> Response:
    page = resources.files("culver.gateway.api").joinpath("docs.html").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self' ws: wss:"
    return HTMLResponse(page, headers={"Content-Security-Policy": policy})


async def home(request: Request) -> Response:
    return RedirectResponse("/docs")
