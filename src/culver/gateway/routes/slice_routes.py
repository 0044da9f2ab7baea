"""`/v1/slices`: show, add and remove slices of the index."""

from starlette.requests import Request

from culver.control import SlicesView
from culver.gateway.api.operations import Operations
from culver.gateway.gateway_context import gateway_of
from culver.messages import NewSlice

operations = Operations("operations", "For operators")


@operations.add("GET /v1/slices")
async def slices(request: Request) -> SlicesView:
    """Show the slices of the index."""
    site = gateway_of(request).site
    await site.observation.refresh()
    return site.slices.view()


@operations.add("POST /v1/slices", status=201, problems=(404, 409))
async def add_slice(request: Request, body: NewSlice | None) -> SlicesView:
    """Add a slice, which takes half of another.

    Without a body, or without `split`, the most loaded slice is split. Every event from the next batch on is matched
    with the new slices.
    """
    return await gateway_of(request).site.slices.add(None if body is None else body.split)


@operations.add("DELETE /v1/slices/{number}", problems=(409,))
async def remove_slice(request: Request) -> SlicesView:
    """Remove a slice; its neighbours take over what it has.

    Other slices may have another number then.
    """
    return await gateway_of(request).site.slices.remove(int(request.path_params["number"]))
