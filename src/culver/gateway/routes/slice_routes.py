"""The slices of the index: `/v1/slices`, to look at, add and remove."""

from starlette.requests import Request

from culver.control import SlicesView
from culver.gateway.api.operations import Operations
from culver.gateway.gateway_context import gateway_of
from culver.messages import NewSlice

operations = Operations("operations", "For operators")


@operations.add(
    "GET", "/v1/slices", "slices", "Which slices has the index?", "What each slice holds and does"
)
async def view(request: Request) -> SlicesView:
    site = gateway_of(request).site
    await site.observation.refresh()
    return site.slices.view()


@operations.add(
    "POST",
    "/v1/slices",
    "addSlice",
    "Add a slice, which takes half of another",
    "Added; every event from the next batch on is matched with it",
    status=201,
    problems=(404, 409),
    description="Without a body, or without `split`, the most loaded slice is split.",
)
async def add(request: Request, body: NewSlice | None) -> SlicesView:
    return await gateway_of(request).site.slices.add(None if body is None else body.split)


@operations.add(
    "DELETE",
    "/v1/slices/{number}",
    "removeSlice",
    "Remove a slice; its neighbours take over what it has",
    "Removed; others may have another number now",
    problems=(409,),
)
async def remove(request: Request) -> SlicesView:
    return await gateway_of(request).site.slices.remove(int(request.path_params["number"]))
