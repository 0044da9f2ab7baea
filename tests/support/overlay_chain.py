"""A chain of sites under traffic: publishers and readers in threads, and a link that can be cut.

s0 --- s1 --- ... -relay- s4      every site has a durable subscription to everything
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from culver.loop_thread import LoopThread
from support.service import Service, free_port
from support.severable import Severable, severable

SUBSCRIPTION = "all"
PARTS = 12
"""Events are dealt out in turn to so many parts, for subscriptions to some of them."""


def wait_for(condition: Callable[[], object], what: str, timeout_seconds: float = 60) -> float:
    """Returns how long it took. A site that does not answer does not count as an answer."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return time.monotonic() - began
        assert time.monotonic() < began + timeout_seconds, f"{what}: not in {timeout_seconds} s"
        time.sleep(0.02)


class PacedPublisher(threading.Thread):
    """Publishes so many events a second at a site, each with its number and the time. A publication without an answer
    may or may not be in the log, and is not repeated."""

    def __init__(self, service: Service, events_per_second: float, batch: int = 5) -> None:
        super().__init__(name=f"publisher at {service.data_dir.name}")
        self.site = service.data_dir.name
        self.acknowledged: list[int] = []
        self.unknown: set[int] = set()
        self._pause_seconds = batch / events_per_second
        self._batch = batch
        self._http = httpx.Client(base_url=service.url, timeout=10, trust_env=False)
        self._stop_asked = threading.Event()

    def run(self) -> None:
        number, due = 0, time.monotonic()
        while not self._stop_asked.is_set():
            batch = list(range(number, number + self._batch))
            number += self._batch
            now = time.monotonic()
            try:
                body = [{"n": each, "site": self.site, "t": now, "part": each % PARTS} for each in batch]
                self._http.post("/v1/events", json=body).raise_for_status()
                self.acknowledged += batch
            except httpx.HTTPError:
                self.unknown.update(batch)
            # Where the site was down, what was not published is not made up for.
            due = max(due + self._pause_seconds, time.monotonic() - self._pause_seconds)
            self._stop_asked.wait(max(0.0, due - time.monotonic()))
        self._http.close()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


@dataclass(slots=True)
class Received:
    """`numbers` are those of one origin, in the order of delivery ids; `latencies` are (when, seconds)."""

    numbers: list[int] = field(default_factory=list)
    latencies: list[tuple[float, float]] = field(default_factory=list)


class MailboxReaderThread(threading.Thread):
    """Reads and acknowledges the mailbox of a site, also while the site comes and goes. A redelivery, which has the
    id of a delivery before, does not count."""

    def __init__(self, service: Service) -> None:
        super().__init__(name=f"reader at {service.data_dir.name}")
        self.site = service.data_dir.name
        self.received: dict[str, Received] = defaultdict(Received)
        self.other: list[dict[str, Any]] = []
        self._last = -1
        self._http = httpx.Client(base_url=service.url, timeout=10, trust_env=False)
        self._stop_asked = threading.Event()

    def run(self) -> None:
        path = f"/v1/subscriptions/{SUBSCRIPTION}"
        while not self._stop_asked.is_set():
            try:
                answer = self._http.get(f"{path}/events", params={"limit": 1000, "wait": 1})
                answer.raise_for_status()
                items = answer.json()["items"]
                for item in items:
                    self._take(item)
                if items:
                    last = {"delivery_id": items[-1]["delivery_id"]}
                    self._http.post(f"{path}/ack", json=last).raise_for_status()
            except httpx.HTTPError:
                self._stop_asked.wait(0.1)
        self._http.close()

    def _take(self, item: dict[str, Any]) -> None:
        if item["type"] != "event":
            self.other.append(item)
            return
        offset = int(item["delivery_id"].rpartition(":")[2])
        if offset <= self._last:
            return
        self._last = offset
        now, event = time.monotonic(), item["event"]
        received = self.received[event["site"]]
        received.numbers.append(event["n"])
        received.latencies.append((now, now - event["t"]))

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class SiteChain:
    """The last link of the chain has a relay in it. Use `running_chain`."""

    def __init__(self, services: list[Service], relay: Severable, loop: LoopThread) -> None:
        self.services = services
        self._relay = relay
        self._loop = loop
        self.publishers: list[PacedPublisher] = []
        self.readers = [MailboxReaderThread(service) for service in services]

    def cut(self) -> None:
        """Cut the last site off."""
        self._relay.refusing = True
        self._loop.run(self._sever())

    async def _sever(self) -> None:
        self._relay.sever()

    def mend(self) -> None:
        self._relay.refusing = False

    def is_connected(self) -> bool:
        """Whether every site reaches every other."""
        return all(
            sum(each["reachable"] for each in overlay(service)["sites"]) == len(self.services) - 1
            for service in self.services
        )

    def kill(self, number: int) -> float:
        """Kill a site, start it again, and return how long the routes took from when it was ready."""
        service = self.services[number]
        service.kill()
        service.start()
        service.wait_until_ready()
        return wait_for(self.is_connected, f"routes after a kill of s{number}")

    def latencies(self, site: int, origin: str, since: float, until: float) -> list[float]:
        """The latencies of what a site has received of an origin in some time, ascending."""
        received = self.readers[site].received[origin]
        return sorted(seconds for when, seconds in received.latencies if since <= when < until)

    def check(self) -> None:
        """Every site gets everything that was acknowledged, in each origin's order, and nothing twice."""

        def is_complete() -> bool:
            return all(
                set(reader.received[each.site].numbers) >= set(each.acknowledged)
                for reader in self.readers
                for each in self.publishers
            )

        try:
            wait_for(is_complete, "everything everywhere", 120)
        finally:
            for reader in self.readers:
                reader.stop()
        for reader in self.readers:
            assert reader.other == []
            for publisher in self.publishers:
                numbers = reader.received[publisher.site].numbers
                assert numbers == sorted(set(numbers)), f"{publisher.site} at {reader.site}: in order, once"
                assert set(numbers) <= {*publisher.acknowledged, *publisher.unknown}
        assert all(overlay(service)["gaps"] == [] for service in self.services)


def overlay(service: Service) -> dict[str, Any]:
    document: dict[str, Any] = service.http.get("/v1/overlay").json()
    return document


@contextlib.contextmanager
def running_chain(directory: Path, count: int) -> Iterator[SiteChain]:
    """A chain whose sites know and serve one another."""
    with contextlib.ExitStack() as stack:
        ports = [free_port() for _ in range(count)]
        relays: list[Severable] = []
        loop = LoopThread("culver-relay", _kept(severable(ports[-2]), relays))
        stack.callback(loop.close)
        (relay,) = relays
        services = []
        for number, port in enumerate(ports):
            peer = f"127.0.0.1:{ports[number - 1]}"
            if number == count - 1:
                peer = relay.url.removeprefix("http://")
            peers = ("--peer", peer) if number else ()
            arguments = ("--name", f"s{number}", "--overlay", f"127.0.0.1:{port}", *peers)
            service = Service(
                directory / f"s{number}",
                "inline",
                *arguments,
                # A site that is cut off would dial others itself.
                CULVER_OVERLAY_RESCUE="false",
            )
            services.append(stack.enter_context(service))
        for service in services:
            service.wait_until_ready()
        chain = SiteChain(services, relay, loop)
        wait_for(chain.is_connected, "a way from everywhere to everywhere")
        for service in services:
            body = {"id": SUBSCRIPTION, "filter": "n >= 0", "wait": "sites", "wait_seconds": 30}
            made = service.http.post("/v1/subscriptions", json=body)
            made.raise_for_status()
            assert None not in made.json()["sites"].values()
        for reader in chain.readers:
            reader.start()
            stack.callback(reader.stop)
        yield chain


@contextlib.asynccontextmanager
async def _kept(
    context: contextlib.AbstractAsyncContextManager[Severable], kept: list[Severable]
) -> AsyncIterator[None]:
    async with context as entered:
        kept.append(entered)
        yield


@contextlib.contextmanager
def publishing(chain: SiteChain, events_per_second: float, *sites: int) -> Iterator[None]:
    """Publishers at some sites, which share the rate."""
    chain.publishers = [
        PacedPublisher(chain.services[each], events_per_second / len(sites)) for each in sites
    ]
    for publisher in chain.publishers:
        publisher.start()
    try:
        yield
    finally:
        for publisher in chain.publishers:
            publisher.stop()
