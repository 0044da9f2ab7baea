"""One flipped bit in any file of a site ends in exact answers, an announced gap, or a refusal that names the file.

A real process lives through subscriptions that come, change and go, and events that are matched, acknowledged and
dropped. It is killed; its data directory is the first that is flipped. Then it starts again and stops, which leaves
the second. The third has more events in the log, which nobody has matched yet; only its log is flipped. Each flip is
made in a fresh copy, which is opened in this process.
"""

import asyncio
import json
import logging
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from culver.assembly import open_site
from culver.config import (
    DeliverySettings,
    EventSettings,
    GatewaySettings,
    LogSettings,
    PipelineSettings,
    Settings,
)
from culver.delivery import Delivery
from culver.errors import CulverError
from culver.model.columns import encode
from culver.model.formats import event_from_object
from culver.pipeline import parse_notification_file_name
from culver.site import RunningSite
from support.logs import append_unmatched
from support.service import Service
from support.until import until

pytestmark = pytest.mark.together("flips")  # they share a site's life

Matches = Callable[[int], bool]
_SEGMENT_BYTES = 8_192
_DROPPING = "small"
_MOST_PENDING = 7
_UNMATCHED = 60


@dataclass
class Expectation:
    """What the site must answer. Event n is at offset n; a window is a filter's first and last offset."""

    events: int = 0
    filters: dict[str, str] = field(default_factory=dict)
    windows: dict[str, list[tuple[int, int | None, Matches]]] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)

    def add(self, subscription: str, text: str, matches: Matches) -> None:
        self.filters[subscription] = text
        self.windows.setdefault(subscription, []).append((self.events, None, matches))

    def end(self, subscription: str) -> None:
        start, _, matches = self.windows[subscription].pop()
        self.windows[subscription].append((start, self.events, matches))
        del self.filters[subscription]

    def offsets(self, subscription: str, events: int) -> list[int]:
        return [
            n
            for start, end, matches in self.windows[subscription]
            for n in range(start, events if end is None else end)
            if n > self.cursors.get(subscription, -1) and matches(n)
        ]


def event(n: int) -> dict[str, Any]:
    return {"n": n, "kind": "abcd"[n % 4], "price": price_of(n), "note": f"event number {n} " * 4}


def price_of(n: int) -> float:
    return n % 50 + 0.5


def above(threshold: float) -> Matches:
    return lambda n: price_of(n) > threshold


def of_kind(kind: str, price: float) -> Matches:
    return lambda n: "abcd"[n % 4] == kind and price_of(n) >= price


class Life:
    """The site's life, and what must be true of it afterwards."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.expected = Expectation()

    def live(self) -> None:
        for threshold in range(0, 50, 10):
            self._add(f"above-{threshold}", f"price > {threshold}", above(threshold))
        for kind in "abcd":
            self._add(f"kind-{kind}", f"kind = '{kind}'", of_kind(kind, 0))
        self._add(_DROPPING, "n >= 0", lambda n: True, mailbox={"max_count": _MOST_PENDING})
        self._add(
            "text", "note LIKE '%7 event%' AND n > 3", lambda n: n % 10 == 7 and n > 3, scheme="counting"
        )
        self._add("gone", "n > 0", lambda n: n > 0)
        self._rows("quotes", [[f"{k}", p] for k in "abcd" for p in (5.0, 20.0, 40.0)], 0)
        self._publish(60)
        self._stored()
        self._replace("above-20", "n = 61 OR price > 49", lambda n: n == 61 or price_of(n) > 49)
        self._replace("kind-b", "kind = 'd'", lambda n: n % 4 == 3)
        self._replace("quotes.4", "price < 3", lambda n: price_of(n) < 3)
        for subscription in ("gone", "quotes.7"):
            self.service.http.delete(f"/v1/subscriptions/{subscription}").raise_for_status()
            self.expected.end(subscription)
        self._rows("quotes", [["a", 1.0], ["b", 2.0]], 12)
        self._publish(50)
        self._acknowledge("kind-a", 40)
        self._acknowledge("quotes.1", 12)
        self._acknowledge("above-0", 80)
        self._stored()
        self._add("late", "kind IN ('a', 'c')", lambda n: n % 2 == 0)
        self._publish(30)
        self._acknowledge("kind-c", 50)

    def _add(self, subscription: str, text: str, matches: Matches, **options: Any) -> None:
        body = {"id": subscription, "filter": text, **options}
        self.service.http.post("/v1/subscriptions", json=body).raise_for_status()
        self.expected.add(subscription, text, matches)

    def _replace(self, subscription: str, text: str, matches: Matches) -> None:
        self.service.http.put(f"/v1/subscriptions/{subscription}", json={"filter": text}).raise_for_status()
        self.expected.end(subscription)
        self.expected.add(subscription, text, matches)

    def _rows(self, name: str, rows: list[list[Any]], first: int) -> None:
        body = {"filter": "kind = ? AND price >= ?", "rows": rows}
        self.service.http.post(f"/v1/sets/{name}", json=body).raise_for_status()
        for place, (kind, price) in enumerate(rows, first):
            self.expected.add(
                f"{name}.{place}",
                f"kind = '{kind}' AND price >= {price}",
                of_kind(kind, price),
            )

    def _publish(self, count: int) -> None:
        end = self.expected.events + count
        for start in range(self.expected.events, end, 5):
            body = [event(n) for n in range(start, min(start + 5, end))]
            self.service.http.post("/v1/events", json=body).raise_for_status()
        self.expected.events = end
        self.service.wait_until_delivered()

    def _acknowledge(self, subscription: str, offset: int) -> None:
        body = {"delivery_id": f"{subscription}:{offset}"}
        self.service.http.post(f"/v1/subscriptions/{subscription}/ack", json=body).raise_for_status()
        self.expected.cursors[subscription] = offset

    def _stored(self) -> None:
        """Wait until all notifications are on disk."""
        directory = self.service.data_dir / "delivery" / "notifications"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            bounds = [parse_notification_file_name(path.name) for path in directory.iterdir()]
            if any(each is not None and each[1] == self.expected.events for each in bounds):
                return
            time.sleep(0.05)
        raise AssertionError("the notifications are not written")


@dataclass(frozen=True)
class Prepared:
    directories: dict[str, tuple[Path, Expectation]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    root = tmp_path_factory.mktemp("flips")
    segment_bytes = str(_SEGMENT_BYTES)
    with Service(
        root / "data", CULVER_LOG_SEGMENT_BYTES=segment_bytes, CULVER_LOG_RESERVE_BYTES="0"
    ) as service:
        service.wait_until_ready()
        life = Life(service)
        life.live()
        service.kill()
        shutil.copytree(service.data_dir, root / "killed")
        service.start()
        service.wait_until_ready()
        service.wait_until_delivered()
        assert service.interrupt() == 0
        shutil.copytree(service.data_dir, root / "stopped")
    shutil.copytree(root / "stopped", root / "behind")
    events = range(life.expected.events, life.expected.events + _UNMATCHED)
    batches = [
        encode(
            [event_from_object(event(n), EventSettings()) for n in events[at : at + 5]],
            time.time_ns() // 1_000,
        )
        for at in range(0, len(events), 5)
    ]
    settings = LogSettings(segment_bytes=_SEGMENT_BYTES)
    append_unmatched(root / "behind" / "log", [each for batch in batches for each in batch], settings)
    return Prepared(
        {
            "killed": (root / "killed", life.expected),
            "stopped": (root / "stopped", life.expected),
            "behind": (root / "behind", replace(life.expected, events=events.stop)),
        }
    )


def test_the_site_as_it_was_answers_exactly(prepared: Prepared, tmp_path: Path) -> None:
    for name, (directory, expected) in prepared.directories.items():
        shutil.copytree(directory, tmp_path / name)
        assert asyncio.run(outcome(tmp_path / name, tmp_path / name / "none", expected)) == "exact"


@pytest.mark.slow(seconds=20)
def test_a_flipped_bit_never_ends_in_a_wrong_answer(
    prepared: Prepared, tmp_path: Path, full_length: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.randrange(1 << 32) if full_length else 7
    rng, ends, wrong = random.Random(seed), Counter[str](), list[str]()
    caplog.set_level(logging.CRITICAL)
    for number in range(400 if full_length else 60):
        name = ("killed", "stopped", "behind")[number % 3]
        directory, expected = prepared.directories[name]
        copy = tmp_path / "copy"
        shutil.copytree(directory, copy)
        path, bit = flip(copy / "log" if name == "behind" else copy, rng)
        try:
            end = asyncio.run(outcome(copy, path, expected))
        except Exception as exc:
            end = "wrong"
            what = f"seed {seed}, flip {number}: bit {bit} of {path.relative_to(copy)} of the {name} site"
            wrong.append(f"{what}: {type(exc).__name__} {exc}")
        ends[f"{name} {path.suffix} {end}"] += 1
        shutil.rmtree(copy)
    logging.getLogger(__name__).critical("%s", ends)
    assert not wrong, "\n".join(wrong)
    assert any(end.endswith("refused") for end in ends), "no flip has hit anything"
    assert ends["behind .log gap"], "no flip has hit an event"


def flip(directory: Path, rng: random.Random) -> tuple[Path, int]:
    """Every kind of file has the same chance, whatever the number and the size of the files."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.stat().st_size:
            kinds.setdefault(path.suffix, []).append(path)
    path = rng.choice(rng.choice(list(kinds.values())))
    content = bytearray(path.read_bytes())
    places: Sequence[int] = range(len(content))
    if rng.random() < 0.5:  # more of a file is in use than random bits of large pages would hit
        places = [place for place in places if content[place]]
    bit = 8 * rng.choice(places) + rng.randrange(8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return path, bit


async def outcome(directory: Path, flipped: Path, expected: Expectation) -> str:
    """How the site ends that has a flipped bit: "exact", "gap" or "refused". Raises AssertionError for any other."""
    settings = Settings(
        data_dir=directory,
        log=LogSettings(segment_bytes=_SEGMENT_BYTES, reserve_bytes=0),
        pipeline=PipelineSettings(engine="inline"),
        gateway=GatewaySettings(port=0),
        delivery=DeliverySettings(mailbox_age_seconds=10**9),
    )
    try:
        async with open_site(settings) as site:
            return await _answers(site, flipped, expected)
    except CulverError as exc:
        if not _names(exc.message, flipped):
            raise
        return "refused"


async def _answers(site: RunningSite, flipped: Path, expected: Expectation) -> str:
    if not await _delivered(site, flipped):
        return "refused"
    found = {each.id: each.filter for each in await site.subscriptions.page(None, 1_000)}
    assert found == expected.filters
    end = await _mailboxes(site, expected, expected.events)
    events, settings = expected.events + 8, EventSettings()
    await site.publications.publish(
        [event_from_object(event(n), settings) for n in range(expected.events, events)]
    )
    if not await _delivered(site, flipped):
        return "refused"
    assert await _mailboxes(site, expected, events) == end
    return end


async def _delivered(site: RunningSite, flipped: Path) -> bool:
    """Wait until the engine has caught up, or has stopped at a file that it names."""
    status = site.observation.status

    def stopped() -> bool:
        return not status()["ready"] and _names(status()["state"], flipped)

    await until(lambda: stopped() or status()["delivered_offset"] == status()["log_next_offset"], 60)
    return not stopped()


async def _mailboxes(site: RunningSite, expected: Expectation, events: int) -> str:
    end = "exact"
    for registration in await site.subscriptions.page(None, 1_000):
        name = registration.id
        session = await site.sessions.open(registration)
        offsets: list[int] = []
        missing: set[int] = set()
        while items := await session.receive(500, 0):
            for item in items:
                if isinstance(item, Delivery):
                    assert json.loads(item.payload) == event(item.offset)
                    offsets.append(item.offset)
                else:
                    missing.update(range(item.start, item.end))
        await session.close()
        wanted = expected.offsets(name, events)
        if name == _DROPPING:
            assert missing, "the gap of the full mailbox"
        elif missing:
            end = "gap"
        assert offsets == [offset for offset in wanted if offset in offsets], name
        assert set(wanted) - set(offsets) <= missing, (name, sorted(set(wanted) - set(offsets) - missing))
    return end


def _names(text: str, flipped: Path) -> bool:
    """Whether a message names the file, or the one that a companion belongs to."""
    return any(str(name) in text for name in (flipped, str(flipped).rpartition("-")[0]) if str(name))
