"""Sites of an overlay as separate processes, killed under traffic: every subscriber gets everything, once."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.service import Service, free_port

pytestmark = pytest.mark.system

BATCH = 5


@contextlib.contextmanager
def chain(
    directory: Path, *names: str, engines: dict[str, tuple[str, int]] | None = None
) -> Iterator[list[Service]]:
    """Sites, each linked with the one before. `engines` has the engine and the number of gateways of some."""
    services: list[Service] = []
    before: str | None = None
    with contextlib.ExitStack() as stack:
        for name in names:
            address = f"127.0.0.1:{free_port()}"
            peers = () if before is None else ("--peer", before)
            engine, gateways = (engines or {}).get(name, ("inline", 1))
            arguments = (engine, "--name", name, "--overlay", address, *peers)
            services.append(stack.enter_context(Service(directory / name, *arguments, gateways=gateways)))
            before = address
        for service in services:
            service.wait_until_ready()
        yield services


def wait_for(condition: Callable[[], object], what: str, timeout_seconds: float = 60) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        with contextlib.suppress(httpx.TransportError):
            if condition():
                return
        assert time.monotonic() < deadline, f"{what}: not in {timeout_seconds} s"
        time.sleep(0.02)


def sites(service: Service) -> dict[str, Any]:
    return {each["name"]: each for each in service.http.get("/v1/overlay").json()["sites"]}


def wait_until_linked(service: Service, *names: str) -> None:
    def linked() -> bool:
        return all(sites(service).get(name, {}).get("reachable") for name in names)

    wait_for(linked, f"linked with {names}")


def subscribe(service: Service, name: str, text: str) -> dict[str, Any]:
    body = {"id": name, "filter": text, "wait": "sites", "wait_seconds": 30}
    answer = service.http.post("/v1/subscriptions", json=body)
    answer.raise_for_status()
    made: dict[str, Any] = answer.json()
    assert None not in made["sites"].values()
    return made


class Publisher(threading.Thread):
    """Publishes numbered events at a site until it is stopped, and tells which are acknowledged. A publication
    without an answer may or may not be in the log, and is not repeated."""

    def __init__(self, service: Service) -> None:
        super().__init__(name="publisher")
        self.name_of_site = service.data_dir.name
        self.acknowledged: list[int] = []
        self.unknown: set[int] = set()
        self._http = httpx.Client(base_url=service.url, timeout=10, trust_env=False)
        self._stop_asked = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._stop_asked.is_set():
            batch = list(range(number, number + BATCH))
            number += BATCH
            body = [{"n": each, "site": self.name_of_site} for each in batch]
            try:
                self._http.post("/v1/events", json=body).raise_for_status()
                self.acknowledged += batch
            except httpx.HTTPError:
                self.unknown.update(batch)
            self._stop_asked.wait(0.01)
        self._http.close()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def check(service: Service, publishers: list[Publisher]) -> None:
    """The mailbox of `all` gets what every publisher has published, in order, and nothing twice."""
    got: dict[str, list[int]] = {each.name_of_site: [] for each in publishers}

    def is_complete() -> bool:
        for item in service.receive_all("all"):
            assert item["type"] == "event", item
            got[item["event"]["site"]].append(item["event"]["n"])
        return all(set(got[each.name_of_site]) >= set(each.acknowledged) for each in publishers)

    wait_for(is_complete, f"everything at {service.data_dir.name}")
    for publisher in publishers:
        numbers = got[publisher.name_of_site]
        assert numbers == sorted(set(numbers)), "in order, and once"
        assert set(numbers) <= {*publisher.acknowledged, *publisher.unknown}


@pytest.mark.slow(seconds=15)
def test_kills_of_sites_in_a_chain_lose_and_double_nothing(tmp_path: Path) -> None:
    with chain(tmp_path, "paris", "lyon", "bonn") as (paris, lyon, bonn):
        services = [paris, lyon, bonn]
        for service, others in (
            (paris, ("lyon", "bonn")),
            (bonn, ("lyon", "paris")),
            (lyon, ("bonn", "paris")),
        ):
            wait_until_linked(service, *others)
            subscribe(service, "all", "n >= 0")
        publishers = [Publisher(paris), Publisher(bonn)]
        for publisher in publishers:
            publisher.start()
        try:
            for victim in (lyon, bonn, paris):
                before = sum(len(each.acknowledged) for each in publishers)
                wait_for(
                    lambda before=before: sum(len(each.acknowledged) for each in publishers) >= before + 200,  # type: ignore[misc]
                    "traffic",
                )
                victim.kill()
                victim.start()
                victim.wait_until_ready()
        finally:
            for publisher in publishers:
                publisher.stop()
        for service in services:
            check(service, publishers)
            assert service.http.get("/v1/overlay").json()["gaps"] == []


@pytest.mark.spark
@pytest.mark.slow(seconds=25)
def test_site_on_spark_with_two_gateways_and_one_inline_feed_each_other(tmp_path: Path) -> None:
    with chain(tmp_path, "paris", "lyon", engines={"paris": ("spark", 2)}) as (paris, lyon):
        wait_until_linked(paris, "lyon")
        wait_until_linked(lyon, "paris")
        # Every gateway of a site answers for the whole site.
        second = httpx.Client(base_url=f"http://127.0.0.1:{paris.port + 1}", timeout=60, trust_env=False)
        with second:
            body = {"id": "there", "filter": "n < 100", "wait": "sites", "wait_seconds": 30}
            made = second.post("/v1/subscriptions", json=body, follow_redirects=True).json()
            assert made["sites"] == {"lyon": 0}
            assert [each["name"] for each in second.get("/v1/overlay").json()["sites"]] == ["lyon"]
        subscribe(lyon, "all", "n >= 0")
        lyon.http.post(
            "/v1/events", json=[{"n": n, "site": "lyon"} for n in range(90, 110)]
        ).raise_for_status()
        paris.http.post("/v1/events", json=[{"n": n, "site": "paris"} for n in range(50)]).raise_for_status()
        got: list[int] = []

        def lyon_has_all() -> bool:
            got.extend(item["event"]["n"] for item in lyon.receive_all("all"))
            return len(got) >= 70

        wait_for(lyon_has_all, "events of paris at lyon")
        assert sorted(got) == sorted([*range(90, 110), *range(50)])
        answer: list[Any] = []

        def paris_has_all() -> bool:
            answer[:] = paris.http.get(
                "/v1/subscriptions/there/events", params={"limit": 1000, "wait": 0}, follow_redirects=True
            ).json()["items"]
            return len(answer) >= 60

        wait_for(paris_has_all, "events of lyon at paris")
        assert sorted(each["event"]["n"] for each in answer) == sorted([*range(90, 100), *range(50)])
        assert paris.http.get("/v1/subscriptions").json()["subscriptions"][0]["id"] == "there"
        gateways = paris.http.get("/v1/gateways").json()["gateways"]
        assert sum(each["subscriptions"] for each in gateways) == 1
