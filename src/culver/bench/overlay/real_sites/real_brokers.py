"""Real brokers: sites on the inline engine, in processes of their own, with limited links between them.

site 0 <--proxy, 1 MB/s each way-- site 1        site 1 dials; the proxy listens before site 0
"""

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from culver.bench.bench_frame import BenchmarkFailed
from culver.bench.overlay.broker_topologies import Topology
from culver.bench.overlay.real_sites.link_proxy import limited_link
from culver.bench.site_process import SiteProcess

_POLL_SECONDS = 0.1
_LIMIT_SECONDS = 60.0


class RealBrokers:
    """Made by `real_brokers`."""

    def __init__(self, sites: Sequence[SiteProcess]) -> None:
        self.sites = sites
        self._http = [site.client() for site in sites]

    def close(self) -> None:
        for http in self._http:
            http.close()

    def overlay(self, broker: int) -> dict[str, Any]:
        """What a site tells of the overlay."""
        answer = self._http[broker].get("/v1/overlay")
        answer.raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def subscribe(self, broker: int, text: str) -> None:
        """Register a durable subscription, for a mailbox that nobody reads."""
        answer = self._http[broker].post("/v1/subscriptions", json={"filter": text})
        answer.raise_for_status()

    def wait_until_linked(self) -> None:
        """Wait until every site reaches all others. Raises BenchmarkFailed."""
        others = len(self.sites) - 1

        def is_linked() -> bool:
            return all(
                sum(site["reachable"] for site in self.overlay(broker)["sites"]) == others
                for broker in range(len(self.sites))
            )

        self._wait(is_linked, "all sites to be linked")

    def wait_until_in_effect(self) -> None:
        """Wait until every site's newest advertisement is in effect at all others. Raises BenchmarkFailed."""

        def is_in_effect() -> bool:
            documents = [self.overlay(broker) for broker in range(len(self.sites))]
            own = {each["site"]["key"]: each["site"]["advertisement"]["version"] for each in documents}
            return all(
                site["advertisement"]["version"] == own[site["key"]] and site["applied_from"] is not None
                for each in documents
                for site in each["sites"]
            )

        # A site waits a moment before it advertises, so that subscriptions share an advertisement.
        time.sleep(1.0)
        self._wait(is_in_effect, "all advertisements to be in effect")

    def bytes_on_links(self) -> dict[tuple[int, str], int]:
        """What each site has sent to each neighbour so far."""
        return {
            (broker, link["peer"]): link["bytes_sent"]
            for broker in range(len(self.sites))
            for link in self.overlay(broker)["links"]
        }

    def events_and_packets(self) -> tuple[int, int]:
        """How many messages of others all sites have got so far, and in how many packets."""
        documents = [self.overlay(broker) for broker in range(len(self.sites))]
        events = sum(site["events_received"] for each in documents for site in each["sites"])
        return events, sum(each["totals"]["packets_received"] for each in documents)

    def cpu_seconds(self) -> list[float]:
        return [site.cpu_seconds() for site in self.sites]

    def _wait(self, is_done: Any, what: str) -> None:
        deadline = time.perf_counter() + _LIMIT_SECONDS
        while not is_done():
            if time.perf_counter() > deadline:
                raise BenchmarkFailed(f"waited {_LIMIT_SECONDS:.0f} s for {what}")
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def real_brokers(
    topology: Topology, directory: Path, link_bytes_per_second: float | None
) -> Iterator[RealBrokers]:
    """Start the sites of a topology, and wait until they are linked. A single site is in no overlay."""
    with contextlib.ExitStack() as stack:
        ports = [_free_port() for _ in range(topology.brokers)]
        sites: list[SiteProcess] = []
        for broker in range(topology.brokers):
            peers = []
            for one, other in topology.links:
                if other == broker:
                    port = ports[one]
                    if link_bytes_per_second is not None:
                        port = stack.enter_context(limited_link(port, link_bytes_per_second))
                    peers.append(f"127.0.0.1:{port}")
            settings: dict[str, str | int] = {}
            if topology.brokers > 1:
                settings["overlay.name"] = f"broker-{broker}"
                settings["overlay.listen"] = f"127.0.0.1:{ports[broker]}"
                settings["overlay.peers"] = " ".join(peers)
            site = SiteProcess("inline", directory / f"broker-{broker}", settings=settings)
            sites.append(stack.enter_context(site))
        brokers = stack.enter_context(contextlib.closing(RealBrokers(sites)))
        if topology.brokers > 1:
            brokers.wait_until_linked()
        yield brokers


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
