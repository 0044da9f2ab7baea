"""The API's description and its page agree with what the application does."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Route, WebSocketRoute

import culver
from culver.config import OverlaySettings, Settings
from culver.gateway.app import create_app
from culver.gateway.problems import KINDS
from support.described_api import DOCUMENT, check_answer, described_operations as operations, errors_of
from support.fake_site import FakeSite
from support.gateway import memory_client, run

UNDESCRIBED = {"/", "/docs", "/openapi.json"}


def routes() -> set[tuple[str, str]]:
    async def collect() -> None:
        for route in create_app(FakeSite()).routes:
            if isinstance(route, Route) and route.path not in UNDESCRIBED:
                found.update((method, route.path) for method in (route.methods or set()) - {"HEAD"})

    found: set[tuple[str, str]] = set()
    run(collect())
    return found


def walk(node: Any) -> Iterator[Any]:
    yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(inner)


def test_every_route_is_described_and_every_description_has_a_route() -> None:
    assert set(operations()) == routes()


def test_every_reference_leads_somewhere() -> None:
    references = {node["$ref"] for node in walk(DOCUMENT) if isinstance(node, dict) and "$ref" in node}
    assert references
    for reference in references:
        target: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
        assert target


def test_every_operation_has_its_own_id_a_summary_and_a_known_tag() -> None:
    ids = [operation["operationId"] for operation in operations().values()]
    assert len(ids) == len(set(ids))
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    for operation in operations().values():
        assert operation["summary"]
        assert set(operation["tags"]) <= tags


def test_the_document_has_the_version_of_the_product() -> None:
    assert DOCUMENT["info"]["version"] == culver.__version__


def test_every_answer_with_a_body_has_a_schema() -> None:
    for key, operation in operations().items():
        for status, response in operation["responses"].items():
            if status != "204" and "$ref" not in response:
                assert all(content["schema"] for content in response["content"].values()), key
                assert response["description"], key


def test_every_id_has_a_pattern() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name in (
        "NewSubscription",
        "Subscription",
        "CreatedSubscription",
        "Acknowledgement",
        "EventItem",
        "Rows",
    ):
        for member in {"id", "delivery_id", "set"} & schemas.get(name, {"properties": {}})[
            "properties"
        ].keys():
            assert "pattern" in str(schemas[name]["properties"][member]), (name, member)
    for item in DOCUMENT["paths"].values():
        for parameter in item.get("parameters", []):
            assert parameter["schema"].keys() & {"pattern", "minimum"}


def test_every_code_is_described() -> None:
    assert set(DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]) == set(KINDS)
    text = " ".join(item["description"] for item in DOCUMENT["components"]["responses"].values())
    assert set(KINDS) <= set(re.findall(r"\w+", text))


def test_every_path_parameter_is_declared() -> None:
    for path, item in DOCUMENT["paths"].items():
        declared = {
            parameter["name"] for parameter in item.get("parameters", []) if parameter["in"] == "path"
        }
        assert set(re.findall(r"{(\w+)}", path)) == declared


EXAMPLES = [
    (method, path, media, example)
    for (method, path), operation in operations().items()
    for media, content in operation.get("requestBody", {}).get("content", {}).items()
    for example in (
        [content["example"]]
        if "example" in content
        else [entry["value"] for entry in content.get("examples", {}).values()]  # none for binary bodies
    )
]


@pytest.mark.parametrize(("method", "path", "media", "example"), EXAMPLES)
def test_every_example_fits_its_schema(method: str, path: str, media: str, example: Any) -> None:
    content = operations()[method, path]["requestBody"]["content"][media]
    assert errors_of(content["schema"], example) == []


def test_the_examples_of_schemas_fit_them() -> None:
    for name, component in DOCUMENT["components"]["schemas"].items():
        for member, schema in component.get("properties", {}).items():
            for example in schema.get("examples", []):
                assert errors_of(schema, example) == [], (name, member)


@pytest.mark.parametrize(("method", "path", "media", "example"), EXAMPLES)
def test_every_example_is_accepted(method: str, path: str, media: str, example: Any) -> None:
    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:
            if path.endswith("/ack") or "{id}" in path:
                await client.post("/v1/subscriptions", json={"filter": "n >= 0", "id": "alerts"})
                await client.post("/v1/events", json=[{"n": n} for n in range(20)])
            body: Any = {"content": example} if isinstance(example, str) else {"json": example}
            answer = await client.request(
                method,
                path.format(id="alerts", name="quotes", number=1, channel="news"),
                headers={"content-type": media},
                **body,
            )
        assert answer.is_success, answer.text
        check_answer(answer)

    run(scenario())


def test_the_answers_of_a_site_fit_the_schemas() -> None:
    seen: set[tuple[str, str]] = set()

    async def scenario() -> None:
        site = FakeSite()
        async with memory_client(site) as client:

            async def ask(method: str, path: str, json: Any = None) -> None:
                seen.add(check_answer(await client.request(method, path, json=json)))

            await ask(
                "POST", "/v1/subscriptions", {"filter": "n > 2", "id": "alerts", "expires_in_seconds": 9}
            )
            await ask(
                "POST", "/v1/subscriptions", [{"filter": "n > 2"}, {"filter": "n > 3", "scheme": "counting"}]
            )
            await ask("POST", "/v1/subscriptions", {"filter": "n >"})
            await ask("POST", "/v1/subscriptions", {"filter": "n > 2", "id": "alerts"})
            await ask("POST", "/v1/events", [{"n": n} for n in range(6)])
            await ask("POST", "/v1/events", 7)
            await ask("GET", "/v1/subscriptions")
            await ask("GET", "/v1/subscriptions?limit=1")
            await ask("GET", "/v1/subscriptions/alerts")
            await ask("GET", "/v1/subscriptions/nobody")
            await ask("GET", "/v1/subscriptions/alerts/events?wait=0")
            await ask("POST", "/v1/subscriptions/alerts/ack", {"delivery_id": "alerts:3"})
            await ask("POST", "/v1/subscriptions/alerts/ack", {"delivery_id": "other:3"})
            await ask("GET", "/v1/log")
            await ask("GET", "/v1/log/events?from=2")
            await ask("GET", "/v1/subscriptions/alerts/mailbox")
            await ask("GET", "/v1/subscriptions/alerts/mailbox/events?from=4")
            await ask("GET", "/v1/groups/events?prefix=al&wait=0")
            await ask("GET", "/v1/groups/events?set=none&wait=0")
            await ask("GET", "/v1/groups/events?subscription=alerts&subscription=alerts&wait=0")
            await ask("GET", "/v1/groups/stream?set=none")
            await ask("POST", "/v1/groups/ack", {"subscriptions": ["alerts"], "offset": 4})
            await ask("POST", "/v1/groups/ack", {"prefix": "alerts", "position": "4-00000000"})
            await ask("PUT", "/v1/subscriptions/alerts", {"filter": "n > 4", "mailbox": {"max_count": 3}})
            await ask("DELETE", "/v1/subscriptions/alerts")
            await ask("GET", "/v1/stream")
            await ask("GET", "/v1/subscriptions/nobody/stream")
            await ask("POST", "/v1/sets/quotes", {"filter": "a = ?", "rows": [[1], [2]]})
            await ask("GET", "/v1/sets")
            await ask("DELETE", "/v1/sets/quotes")
            await ask("POST", "/v1/filters/test", {"filter": "a > 1", "event": {"b": 1}})
            await ask("POST", "/v1/filters/explain", {"filter": "a > 1"})
            await ask("GET", "/v1/pipeline")
            await ask("GET", "/v1/slices")
            await ask("POST", "/v1/slices", {"split": 0})
            await ask("DELETE", "/v1/slices/1")
            await ask("GET", "/v1/gateways")
            await ask("GET", "/v1/channels")
            await ask("POST", "/v1/channels/news", {"data": "hello"})
            await ask("POST", "/v1/channels/news", {"data": "?", "encoding": "base64"})
            await ask("GET", "/v1/channels/__culver:ring/stream")
            await ask("GET", "/healthz")
            await ask("GET", "/readyz")
            await ask("GET", "/metrics")
            site.ready = False
            await ask("GET", "/readyz")
            await ask("GET", "/v1/overlay")
        site = FakeSite(Settings(overlay=OverlaySettings(name="paris", listen="127.0.0.1:7401")))
        site.overlay.positions_at = {"lyon": 512, "bonn": None}
        async with memory_client(site) as client:
            await ask("GET", "/v1/overlay")
            await ask("DELETE", "/v1/overlay/sites/bonn")
            site.overlay.unreachable = {"bonn"}
            await ask("DELETE", "/v1/overlay/sites/bonn")
            await ask("DELETE", "/v1/overlay/sites/bonn")
            await ask("POST", "/v1/subscriptions", {"filter": "n > 2", "id": "alerts"})
            await ask("GET", "/v1/subscriptions/alerts")
            await ask("GET", "/metrics")

    run(scenario())
    assert seen == set(operations())


@pytest.mark.parametrize("name", ["max_count", "max_bytes", "max_age_seconds"])
def test_a_limit_that_is_null_is_the_default_of_the_schema(name: str) -> None:
    async def scenario() -> None:
        schema = DOCUMENT["components"]["schemas"]["MailboxLimits"]["properties"][name]
        assert "default" not in schema["anyOf"][0]
        assert errors_of(schema, None) == []
        async with memory_client(FakeSite()) as client:
            body = {"filter": "a = 1", "mailbox": {name: None}}
            answer = await client.post("/v1/subscriptions", json=body)
            assert answer.json()["mailbox"][name] == schema["default"]

    run(scenario())


def test_the_description_is_served() -> None:
    async def scenario() -> None:
        async with memory_client(FakeSite()) as client:
            assert (await client.get("/openapi.json")).json() == DOCUMENT

    run(scenario())


def page() -> str:
    texts: list[str] = []

    async def fetch() -> None:
        async with memory_client(FakeSite()) as client:
            answer = await client.get("/docs")
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            texts.append(answer.text)

    run(fetch())
    return texts[0]


def test_the_page_loads_nothing_from_elsewhere() -> None:
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page())
    assert "innerHTML" not in page()


def test_the_page_refers_to_existing_paths_and_operations_only() -> None:
    script = page().split("<script>")[1]
    paths = set(re.findall(r'"(/[a-z][a-z0-9/.]*)"', script))
    app_paths: set[str] = set()

    async def collect() -> None:
        for route in create_app(FakeSite()).routes:
            if isinstance(route, Route | WebSocketRoute):
                app_paths.add(route.path)

    run(collect())
    assert {"/v1/ws", "/openapi.json", "/readyz"} <= paths
    assert paths <= app_paths
    sent = set(re.findall(r'say\({ op: "(\w+)"', script))
    assert sent == {"subscribe", "publish", "detach"}


def test_every_element_that_the_script_looks_for_is_on_the_page() -> None:
    text = page()
    wanted = set(re.findall(r'byId\("([\w-]+)"\)', text))
    assert wanted <= set(re.findall(r'id="([\w-]+)"', text))
