"""Sites of an overlay as separate processes, on both engines and with several gateways."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.service import Service, free_port

pytestmark = pytest.mark.system


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

        def mailboxes() -> int:
            gateways = paris.http.get("/v1/gateways").json()["gateways"]
            return sum(each["subscriptions"] for each in gateways)

        # The other gateway tells of its own once a second.
        wait_for(lambda: mailboxes() == 1, "the subscription at one of the gateways")
