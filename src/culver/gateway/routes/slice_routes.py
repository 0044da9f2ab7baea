"""The slices of the index: `/v1/slices`, to look at, add and remove."""

from starlette.requests import Request
from starlette.responses import Response

from culver.control import SlicesView
from culver.errors import NotFound
from culver.gateway.api.delivery_encoding import encode
from culver.gateway.api.request_fields import Fields, Query, parse_json
from culver.gateway.gateway_context import gateway_of
from culver.gateway.routes.request_bodies import read_body, require_json

_MOST = 2**31 - 1


async def view(request: Request) -> Response:
    Query(request.query_params, ())
    site = gateway_of(request).site
    await site.observation.refresh()
    return _answer(site.slices.view())


async def add(request: Request) -> Response:
    """The body may be left out."""
    gateway = gateway_of(request)
    Query(request.query_params, ())
    body = await read_body(request, gateway.settings.gateway.max_body_bytes)
    split = None
    if body:
        require_json(request.headers)
        fields = Fields(parse_json(body))
        split = fields.optional_integer("split", 0, _MOST)
        fields.close()
    return _answer(await gateway.site.slices.add(split), 201)


async def remove(request: Request) -> Response:
    Query(request.query_params, ())
    number: str = request.path_params["number"]
    if not (number.isascii() and number.isdigit() and int(number[:20]) <= _MOST):
        raise NotFound(
            f"there is no slice {number[:100]!r}; GET /v1/slices lists those there are", field="number"
        )
    return _answer(await gateway_of(request).site.slices.remove(int(number)))


def _answer(seen: SlicesView, status: int = 200) -> Response:
    return Response(encode(seen), status, media_type="application/json")
