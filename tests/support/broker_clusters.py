"""Brokers in clusters under traffic, as separate processes that are killed at random.

b0 ... b8     all linked with one another, in three clusters; each has a durable subscription to a third of all events
b0 b1 b2      have publishers
"""

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.overlay_chain import (
    PARTS,
    SUBSCRIPTION,
    MailboxReaderThread,
    PacedPublisher,
    overlay,
    wait_for,
)
from support.service import Service, free_port

CLUSTERS = 3
PUBLISHERS = 3
_PARTS_WANTED = PARTS // 3
_PUBLICATIONS_PER_SECOND = 8


def wants(broker: int, number: int) -> bool:
    """Whether a broker's subscription matches the event of a number."""
    return (number % PARTS - broker) % PARTS < _PARTS_WANTED


def filter_of(broker: int) -> str:
    parts = [str(part) for part in range(PARTS) if wants(broker, part)]
    return f"part IN ({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class BrokerKill:
    """A kill at some time. A broker that stays dead is not started again."""

    broker: int
    at: float
    stays_dead: bool


class BrokerClusters:
    """Use `running_brokers`."""

    def __init__(self, services: list[Service], seed: int) -> None:
        self.services = services
        self.publishers: list[PacedPublisher] = []
        self.readers = [MailboxReaderThread(service) for service in services]
        self.kills: list[BrokerKill] = []
        self._random = random.Random(seed)

    @property
    def dead(self) -> set[int]:
        return {each.broker for each in self.kills if each.stays_dead}

    @property
    def living(self) -> list[int]:
        return [number for number in range(len(self.services)) if number not in self.dead]

    def is_connected(self) -> bool:
        """Whether every living broker reaches every other one."""
        wanted = len(self.living) - 1
        return all(
            sum(each["reachable"] for each in overlay(self.services[number])["sites"]) == wanted
            for number in self.living
        )

    def clusters(self) -> dict[int, set[int]]:
        """The brokers of each cluster, by their own word."""
        found: dict[int, set[int]] = {}
        for number in self.living:
            found.setdefault(overlay(self.services[number])["site"]["cluster"], set()).add(number)
        return found

    def kill(self, broker: int, *, stays_dead: bool = False) -> None:
        """Kill a broker, and start it again a moment later."""
        self.kills.append(BrokerKill(broker, time.monotonic(), stays_dead))
        self.services[broker].kill()
        if not stays_dead:
            time.sleep(self._random.uniform(0.0, 2.0))
            self.services[broker].start()
            self.services[broker].wait_until_ready()
            wait_for(self.is_connected, f"routes after a kill of b{broker}")

    def kill_at_random(self, seconds: float, pause_seconds: float) -> None:
        """Kill one broker after another for so long. The second one stays dead; it is one without a publisher."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or not self.dead:
            time.sleep(self._random.uniform(0.5, 1.5) * pause_seconds)
            stays_dead = len(self.kills) == 1
            choice = self.living[PUBLISHERS:] if stays_dead else self.living
            self.kill(self._random.choice(choice), stays_dead=stays_dead)
        time.sleep(pause_seconds + 2.0)

    def kill_by_role(self, pause_seconds: float) -> None:
        """Kill a carrier of what the first broker publishes, then that broker itself, and a member for good."""
        carriers = {
            int(each["carrier"].removeprefix("b"))
            for each in overlay(self.services[0])["clusters"]
            if each["is_confirmed"]
        }
        carrier = max(carriers - {0})
        member = min(number for number in self.living[PUBLISHERS:] if number != carrier)
        for broker, stays_dead in ((carrier, False), (0, False), (member, True)):
            self.kill(broker, stays_dead=stays_dead)
            time.sleep(pause_seconds)

    def stall_seconds(self, kill: BrokerKill) -> float:
        """How long after a kill the first event that was published since then had reached every other broker from
        every other publisher."""
        dead = {each.broker for each in self.kills if each.stays_dead and each.at <= kill.at}
        slowest = 0.0
        for reader in (
            each for number, each in enumerate(self.readers) if number not in dead | {kill.broker}
        ):
            for publisher in self.publishers:
                if publisher.site == f"b{kill.broker}":
                    continue
                latencies = list(reader.received[publisher.site].latencies)
                arrivals = (when for when, seconds in latencies if when - seconds >= kill.at)
                slowest = max(slowest, next(arrivals, float("inf")) - kill.at)
        return slowest

    def latencies(self) -> list[float]:
        """Those of everything that a broker got from another one, ascending."""
        return sorted(
            seconds
            for reader in self.readers
            for site, received in reader.received.items()
            if site != reader.site
            for _, seconds in received.latencies
        )

    def check(self) -> None:
        """Every living broker gets exactly what it wants of everything that was acknowledged, once, in each origin's
        order."""

        def missing() -> dict[tuple[str, str], int]:
            found = {}
            for number in self.living:
                reader = self.readers[number]
                for each in self.publishers:
                    wanted = {n for n in each.acknowledged if wants(number, n)}
                    lacking = wanted - set(reader.received[each.site].numbers)
                    if lacking:
                        found[each.site, reader.site] = len(lacking)
            return found

        try:
            wait_for(lambda: not missing(), "everything everywhere", 60)
        finally:
            for reader in self.readers:
                reader.stop()
            assert missing() == {}
        for number in self.living:
            reader = self.readers[number]
            assert reader.other == []
            for publisher in self.publishers:
                numbers = reader.received[publisher.site].numbers
                assert numbers == sorted(set(numbers)), f"{publisher.site} at {reader.site}: in order, once"
                possible = {*publisher.acknowledged, *publisher.unknown}
                assert all(n in possible and wants(number, n) for n in numbers)
        assert [overlay(self.services[number])["gaps"] for number in self.living] == [[]] * len(self.living)


@contextlib.contextmanager
def running_brokers(directory: Path, count: int, seed: int = 1) -> Iterator[BrokerClusters]:
    """Brokers that know one another, with their subscriptions and readers."""
    with contextlib.ExitStack() as stack:
        ports = [free_port() for _ in range(count)]
        services = []
        for number, port in enumerate(ports):
            peers = [argument for each in ports[:number] for argument in ("--peer", f"127.0.0.1:{each}")]
            service = Service(
                directory / f"b{number}",
                "inline",
                *("--name", f"b{number}", "--overlay", f"127.0.0.1:{port}", "--routing", "clusters", *peers),
                CULVER_OVERLAY_CLUSTERS=str(CLUSTERS),
            )
            services.append(stack.enter_context(service))
        for service in services:
            service.wait_until_ready()
        brokers = BrokerClusters(services, seed)
        wait_for(brokers.is_connected, "a way from everywhere to everywhere")
        for number, service in enumerate(services):
            body = {"id": SUBSCRIPTION, "filter": filter_of(number), "wait": "sites", "wait_seconds": 30}
            made = service.http.post("/v1/subscriptions", json=body)
            made.raise_for_status()
            assert None not in made.json()["sites"].values()
        for reader in brokers.readers:
            reader.start()
            stack.callback(reader.stop)
        yield brokers


@contextlib.contextmanager
def publishing_brokers(brokers: BrokerClusters, events_per_second: float) -> Iterator[None]:
    """Publishers at the first brokers, which share the rate. Each waits for an answer before it goes on, so that few
    publications a second have many events: a busy machine could not answer many in time."""
    rate = events_per_second / PUBLISHERS
    batch = round(rate / _PUBLICATIONS_PER_SECOND)
    brokers.publishers = [PacedPublisher(service, rate, batch) for service in brokers.services[:PUBLISHERS]]
    for publisher in brokers.publishers:
        publisher.start()
    try:
        yield
    finally:
        for publisher in brokers.publishers:
            publisher.stop()
