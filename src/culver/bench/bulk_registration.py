"""Registers many durable subscriptions and looks at their mailboxes."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.site_process import site_status
from culver.bench.workloads import Workload
from culver.client import ARROW_STREAM, piece, rows_at_a_time
from culver.inputs import RowsLike, as_table

CHUNK = 1_000


def register(http: httpx.Client, filters: Sequence[str], progress: Callable[[int], None]) -> float:
    """Register durable subscriptions in arrays of 1,000; returns how many were acknowledged per second.

    Calls `progress` with the number registered so far."""
    started = time.perf_counter()
    for at in range(0, len(filters), CHUNK):
        chunk = filters[at : at + CHUNK]
        answer = _answer(http.post("/v1/subscriptions", json=[{"filter": text} for text in chunk]), 201)
        if len(answer["subscriptions"]) != len(chunk):
            raise BenchmarkFailed(f"the site answered for other than {len(chunk)} subscriptions")
        progress(at + len(chunk))
    return len(filters) / (time.perf_counter() - started)


def register_rows(http: httpx.Client, name: str, filter_text: str, rows: RowsLike) -> float:
    """Register rows of values for a filter with parameters as a set, with as many requests as the client would
    make, one after another; returns how many were acknowledged per second, encoding included."""
    started = time.perf_counter()
    done, table = 0, as_table(rows)
    while done < table.num_rows:
        response = http.post(
            f"/v1/sets/{name}",
            params={"filter": filter_text, "first": str(done)},
            content=piece(table, done, rows_at_a_time(table)),
            headers={"content-type": ARROW_STREAM},
        )
        done = _answer(response, 201)["next"]
    return done / (time.perf_counter() - started)


def register_workload(
    http: httpx.Client, workload: Workload, count: int, seed: int, *, settle_seconds: float = 4.0
) -> float:
    """Register a workload's subscriptions, each of its forms as a set, and wait until no new version of the index
    has appeared for `settle_seconds`. Returns how many subscriptions were acknowledged per second."""
    seconds = 0.0
    for number, form in enumerate(draw(workload, count, seed).forms):
        columns = {f"p{place}": column for place, column in enumerate(form.columns)}
        per_second = register_rows(http, f"form-{number}", form.text, columns)
        seconds += len(form.numbers) / per_second
    version = -1
    while version != (version := site_status(http)["index_version"]):
        time.sleep(settle_seconds)
    return count / seconds


def mean_pending(http: httpx.Client, sample: int) -> float:
    """The average number of deliveries in a mailbox, over the first `sample` subscriptions.

    A workload draws all subscriptions alike, so the first ones represent all."""
    pending: list[int] = []
    parameters = {"limit": "100"}
    while len(pending) < sample:
        page = _answer(http.get("/v1/subscriptions", params=parameters), 200)
        pending += [subscription["pending"] for subscription in page["subscriptions"]]
        if page["next"] is None:
            break
        parameters["after"] = page["next"]
    return sum(pending[:sample]) / max(1, len(pending[:sample]))


def _answer(response: httpx.Response, status: int) -> Any:
    if response.status_code != status:
        raise BenchmarkFailed(
            f"{response.request.method} {response.request.url.path} answered {response.status_code}: "
            f"{response.text[:500]}"
        )
    return response.json()
