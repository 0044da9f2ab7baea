"""`/v1/slices`: looking, adding, removing, and what is refused."""

import re
from typing import Any

import pytest

from support.fake_site import FakeSite
from support.gateway import memory_client, run
from support.memory_slices import MemorySlices


def ask(site: FakeSite, method: str, path: str, **options: Any) -> tuple[int, Any]:
    answers: list[tuple[int, Any]] = []

    async def scenario() -> None:
        async with memory_client(site) as client:
            answer = await client.request(method, path, **options)
            answers.append((answer.status_code, answer.json()))

    run(scenario())
    return answers[0]


def sizes(site: FakeSite) -> list[int]:
    return [len(points) for points in site.slices.lists]


def test_view_tells_slices_sets_layers_and_boundaries() -> None:
    status, seen = ask(FakeSite(), "GET", "/v1/slices")
    assert status == 200
    assert (seen["placement"], seen["forwarding"], seen["elastic"]) == ("mpartition", "adaptive", True)
    assert seen["decision"]["reason"] == "the slices keep up"
    assert [each["sets"] for each in seen["slices"]] == [[0, 3], [1, 2, 5]]
    assert [each["home"] for each in seen["sets"]] == [0, 1, 1, 0, None, 1]
    price, symbol = seen["layers"][0]["dimensions"]
    assert price["segments"] == [
        {"slice": 0, "start": None, "end": 100},
        {"slice": 1, "start": 100, "end": None},
    ]
    assert symbol["hashed"] is True


def test_without_a_body_the_most_loaded_slice_is_split() -> None:
    site = FakeSite()
    status, seen = ask(site, "POST", "/v1/slices")
    assert status == 201
    assert [each["slice"] for each in seen["slices"]] == [0, 1, 2]
    assert sizes(site) == [50, 50, 30]
    assert seen["last_change"]["slice"] == 0


@pytest.mark.parametrize(("body", "expected"), [({"split": 1}, [100, 15, 15]), ({}, [50, 50, 30])])
def test_body_may_name_the_slice_to_split(body: dict[str, int], expected: list[int]) -> None:
    site = FakeSite()
    assert ask(site, "POST", "/v1/slices", json=body)[0] == 201
    assert sizes(site) == expected


def test_neighbours_take_over_what_a_removed_slice_had() -> None:
    site = FakeSite()
    site.slices = MemorySlices(lists=[[1], [2, 3], [4]])
    status, seen = ask(site, "DELETE", "/v1/slices/1")
    assert status == 200
    assert site.slices.lists == [[1, 2], [3, 4]]
    assert len(seen["slices"]) == 2


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "field"),
    [
        ("POST", "/v1/slices", {"json": {"split": "1"}}, 400, "split"),
        ("POST", "/v1/slices", {"json": {"split": -1}}, 400, "split"),
        ("POST", "/v1/slices", {"json": {"slice": 1}}, 400, "slice"),
        ("POST", "/v1/slices", {"json": [1]}, 400, "body"),
        ("POST", "/v1/slices", {"content": b"{"}, 415, "content-type"),
        ("POST", "/v1/slices?split=1", {}, 400, "split"),
        ("POST", "/v1/slices", {"json": {"split": 2}}, 404, "split"),
        ("DELETE", "/v1/slices/2", {}, 404, "number"),
        ("DELETE", "/v1/slices/one", {}, 404, "number"),
        ("DELETE", "/v1/slices/-1", {}, 404, "number"),
        ("DELETE", f"/v1/slices/{10**30}", {}, 404, "number"),
        ("DELETE", f"/v1/slices/{'0' * 4_301}", {}, 404, "number"),
        ("GET", "/v1/slices?verbose=1", {}, 400, "verbose"),
    ],
)
def test_wrong_requests_name_what_is_wrong_and_change_nothing(
    method: str, path: str, options: dict[str, Any], status: int, field: str
) -> None:
    site = FakeSite()
    answer, problem = ask(site, method, path, **options)
    assert (answer, problem["field"]) == (status, field)
    assert sizes(site) == [100, 30]


def test_last_slice_stays() -> None:
    site = FakeSite()
    site.slices = MemorySlices(lists=[[1]])
    status, problem = ask(site, "DELETE", "/v1/slices/0")
    assert (status, problem["detail"]) == (409, "this is the last slice, and a site needs one")


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/slices"), ("DELETE", "/v1/slices/1")])
def test_placement_that_cannot_says_which_can(method: str, path: str) -> None:
    site = FakeSite()
    site.slices = MemorySlices("hashed")
    status, problem = ask(site, method, path)
    assert (status, problem["code"], problem["field"]) == (409, "conflict", "placement")
    assert "with event-space, mpartition and one-dimension" in problem["detail"]
    assert sizes(site) == [100, 30]


def test_metrics_tell_the_load_of_slices_and_sets() -> None:
    site = FakeSite()
    texts: list[str] = []

    async def scenario() -> None:
        async with memory_client(site) as client:
            await client.post("/v1/slices")
            texts.append((await client.get("/metrics")).text)

    run(scenario())
    values = dict(re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", texts[0], re.M))
    assert float(values["culver_slices"]) == 3
    assert float(values['culver_slice_busy{slice="1"}']) == 0.25
    assert float(values['culver_slice_match_rate{slice="1"}']) == 5_000
    assert float(values['culver_slice_queue_events{slice="0"}']) == 160
    assert float(values['culver_set_registrations{set="6",slice=""}']) == 7
    assert 'culver_forwarding_info{name="adaptive"} 1.0' in texts[0]
    assert 'culver_elasticity_info{action="add",elastic="true",reason="somebody wanted it"} 1.0' in texts[0]
