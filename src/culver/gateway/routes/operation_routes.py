"""The endpoints for operators and tools: health, readiness, metrics, slices, the API's description and its page."""

from dataclasses import replace
from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from culver.control import SiteObservation, SlicesView
from culver.gateway.api import openapi
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.operations import JSON, Operations
from culver.gateway.gateway_context import gateway_of, url_of
from culver.gateway.gateway_metrics import CONTENT_TYPE
from culver.messages import ForgottenSite, GatewayEntry, Gateways, Health, NewSlice, OverlayStatus, SiteStatus
from culver.roles import no_overlay

operations = Operations("operations", "For operators", takes_any_query=True)
slice_operations = Operations("operations", "For operators")
_TEXT = {"text/plain": {"schema": {"type": "string"}}}


@operations.add("GET /healthz")
async def health(request: Request) -> Health:
    """Tell whether the process lives."""
    return Health(status="ok")


@operations.add("GET /readyz", answer=SiteStatus, other_answers={503: "Not yet, or no longer"})
async def readiness(request: Request) -> Response:
    """Tell whether published events reach subscribers."""
    gateway = gateway_of(request)
    await gateway.site.observation.refresh()
    ready = gateway.site.observation.ready and not gateway.stopping
    document = {**gateway.site.observation.status(), "ready": ready}
    headers = None if ready else {"Retry-After": "1"}
    return Response(encode(document), 200 if ready else 503, headers, JSON)


@operations.add("GET /metrics", answer=_TEXT, result="Metrics")
async def metrics(request: Request) -> Response:
    """Show metrics for Prometheus."""
    gateway = gateway_of(request)
    await gateway.site.observation.refresh()
    return Response(gateway.metrics.render(), media_type=CONTENT_TYPE)


@operations.add("GET /v1/pipeline")
async def pipeline(request: Request) -> SiteObservation:
    """Tell what the operators have done since the start, and what waits."""
    gateway = gateway_of(request)
    await gateway.site.observation.refresh()
    seen = gateway.site.observation.observe()
    return replace(seen, deliveries_sent=seen.deliveries_sent + gateway.metrics.deliveries_sent())


@operations.add("GET /v1/gateways")
async def gateways(request: Request) -> Gateways:
    """List the site's gateways."""
    observation = gateway_of(request).site.observation
    await observation.refresh()
    return Gateways(
        gateways=[
            GatewayEntry(
                number=each.number,
                url=url_of(request, each.port),
                state=each.state,
                subscriptions=each.subscriptions,
                sessions=each.sessions,
            )
            for each in observation.observe().gateways
        ]
    )


@slice_operations.add("GET /v1/overlay", problems=(404,))
async def overlay(request: Request) -> OverlayStatus:
    """Show the other sites, and the links to them."""
    site = gateway_of(request).site
    await site.observation.refresh()
    status = site.overlay.status()
    if status is None:
        raise no_overlay()
    return status


@slice_operations.add("DELETE /v1/overlay/sites/{name}", problems=(404, 409))
async def forget_site(request: Request) -> ForgottenSite:
    """Forget a site that does not come back.

    Its mailbox here is removed, and the events in it are dropped. A site that can be reached is refused.
    """
    return await gateway_of(request).site.overlay.forget(request.path_params["name"])


@slice_operations.add("GET /v1/slices")
async def slices(request: Request) -> SlicesView:
    """Show the slices of the index."""
    site = gateway_of(request).site
    await site.observation.refresh()
    return site.slices.view()


@slice_operations.add("POST /v1/slices", status=201, problems=(404, 409))
async def add_slice(request: Request, body: NewSlice | None) -> SlicesView:
    """Add a slice, which takes half of another.

    Without a body, or without `split`, the most loaded slice is split. Every event from the next batch on is matched
    with the new slices.
    """
    return await gateway_of(request).site.slices.add(None if body is None else body.split)


@slice_operations.add("DELETE /v1/slices/{number}", problems=(409,))
async def remove_slice(request: Request) -> SlicesView:
    """Remove a slice; its neighbours take over what it has.

    Other slices may have another number then.
    """
    return await gateway_of(request).site.slices.remove(int(request.path_params["number"]))


async def describe(request: Request) -> Response:
    document = openapi.document(gateway_of(request).settings, request.app.state.operations)
    return Response(encode(document), media_type=JSON)


async def docs_page(request: Request) -> Response:
    page = resources.files("culver.gateway.api").joinpath("docs.html").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self' ws: wss:"
    return HTMLResponse(page, headers={"Content-Security-Policy": policy})


async def home(request: Request) -> Response:
    return RedirectResponse("/docs")
