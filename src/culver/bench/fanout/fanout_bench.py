"""Runs the rows of the fan-out benchmark: every system in turn within a round, each on a fresh server."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgspec

from culver.bench.bench_frame import Record, Tell, rounded
from culver.bench.fanout.bare_connections import (
    RIVAL_CONNECTIONS,
    BareConnection,
    NumberedPayload,
    fanout_names,
    numbered_payloads,
)
from culver.bench.fanout.client_filters import ClientFilters, Quote
from culver.bench.fanout.culver_connections import PROTOCOLS, CulverConnection
from culver.bench.fanout.fanout_plan import FanoutPlan
from culver.bench.fanout.filter_latency import measure_filter_latency
from culver.bench.fanout.publication_rates import culver_publications, jetstream_publications
from culver.bench.fanout.rival_servers import (
    RIVALS,
    RivalServer,
    missing_rival,
    rival_program,
    rival_version,
)
from culver.bench.fanout.saturation import measure_saturation
from culver.bench.fanout.set_rates import follow_set, measure_set, register_set
from culver.bench.site_process import SiteProcess
from culver.bench.wire_client import SEQUENCE
from culver.bench.workloads.quotes import QuotesWorkload
from culver.version import __version__

Figures = dict[str, float]
"""What one round measured, by the name of the record's member."""

_MEMBERS = (
    "deliveries_per_second",
    "publications_per_second",
    "server_us_per_delivery",
    "p50_ms",
    "p99_ms",
    "send_late_p99_ms",
    "bytes",
)
_SEED = 1
_EVENTS = 1_000  # distinct events of the rows that repeat them
_CHUNK = 500  # durable subscriptions in one request


def run(plan: FanoutPlan, tell: Tell) -> list[Record]:
    """Measure the rows of the plan. A system that is not installed is left out with a line that says so. Raises
    BenchmarkFailed."""
    return _FanoutRun(plan, tell).records()


class _FanoutRun:
    def __init__(self, plan: FanoutPlan, tell: Tell) -> None:
        self._plan = plan
        self._tell = tell
        self._programs: dict[str, Path] = {}
        self._versions: dict[str, str | None] = {"culver": __version__}
        for system in RIVALS:
            program = rival_program(system)
            if program is None:
                tell(missing_rival(system))
            else:
                self._programs[system] = program
                self._versions[system] = rival_version(program)

    def records(self) -> list[Record]:
        # The systems of each row, with what measures one round of one of them.
        rows: dict[str, tuple[Sequence[str], Callable[[str], Figures]]] = {
            "fanout": (("culver", *RIVALS), self._fanout),
            "filters live": (("culver", *RIVALS), self._filters_live),
            "filters durable": (("culver",), self._filters_durable),
            "publications": (("culver", "nats"), partial(self._publications, self._plan.in_flight)),
            "publications wide": (("culver", "nats"), partial(self._publications, self._plan.wide_in_flight)),
            "set": (("culver",), self._set),
        }
        found: list[Record] = []
        for what in self._plan.rows:
            systems, measure = rows[what]
            present = [system for system in systems if system == "culver" or system in self._programs]
            rounds = [
                {system: self._told(what, system, measure) for system in present}
                for _ in range(self._plan.rounds)
            ]
            found += [self._record(what, system, [each[system] for each in rounds]) for system in present]
        return found

    def _told(self, what: str, system: str, measure: Callable[[str], Figures]) -> Figures:
        figures = measure(system)
        self._tell(
            f"{what}, {system}: " + ", ".join(f"{name} {value:,.5g}" for name, value in figures.items())
        )
        return figures

    def _record(self, what: str, system: str, rounds: Sequence[Mapping[str, float]]) -> Record:
        middle = {
            name: rounded(median(figures[name] for figures in rounds), 4) if name in rounds[0] else None
            for name in _MEMBERS
        }
        is_publishing = "publications_per_second" in rounds[0]
        return {
            "system": system,
            "what": what,
            **middle,
            "protocol": PROTOCOLS[self._plan.wire] if system == "culver" and not is_publishing else None,
            "version": self._versions[system],
        }

    # --- the rows -------------------------------------------------------------------------------------------

    def _fanout(self, system: str) -> Figures:
        plan = self._plan
        events = numbered_payloads(QuotesWorkload().events(_EVENTS, _SEED))
        with self._server(system) as server, ExitStack() as stack:
            publisher = self._connection(stack, system, server.port)
            receivers = []
            for _ in range(plan.fanout_connections):
                receiver = self._connection(stack, system, server.port)
                if isinstance(receiver, CulverConnection):
                    filter_text = f"{SEQUENCE} >= 0"
                    request = {"op": "subscribe", "filter": filter_text}
                    receiver.ask([request] * plan.subscribers_per_connection)
                else:
                    receiver.subscribe(fanout_names(system, plan.subscribers_per_connection))
                receivers.append(receiver)
            found = measure_saturation(
                publisher,
                receivers,
                events,
                deliveries_per_event=plan.fanout_connections * plan.subscribers_per_connection,
                outstanding=plan.outstanding,
                warm_up_seconds=plan.warm_up_seconds,
                seconds=plan.fanout_seconds,
                cpu_seconds=server.cpu_seconds,
            )
        return {
            "deliveries_per_second": found.deliveries_per_second,
            "server_us_per_delivery": found.server_us_per_delivery,
            "bytes": found.bytes_per_event * 1_000,
        }

    def _filters_live(self, system: str) -> Figures:
        plan = self._plan
        texts = QuotesWorkload().filters(plan.filters, _SEED)
        with self._server(system) as server, ExitStack() as stack:
            receivers: list[BareConnection] = []
            for number in range(plan.filter_connections):
                receiver = self._connection(stack, system, server.port)
                chosen = range(number, plan.filters, plan.filter_connections)
                if isinstance(receiver, CulverConnection):
                    receiver.ask([{"op": "subscribe", "filter": texts[i]} for i in chosen])
                else:
                    receiver.subscribe_filters(ClientFilters(plan.filters, _SEED, chosen))
                receivers.append(receiver)
            return self._latency(self._connection(stack, system, server.port), receivers)

    def _filters_durable(self, system: str) -> Figures:
        plan = self._plan
        texts = QuotesWorkload().filters(plan.filters, _SEED)
        with self._site() as site, ExitStack() as stack:
            with site.client() as http:
                ids = _durable_subscriptions(http, texts)
            receivers: list[BareConnection] = []
            for number in range(plan.filter_connections):
                receiver = self._culver(stack, site.port, acknowledges=True)
                receiver.ask([{"op": "follow", "subscriptions": ids[number :: plan.filter_connections]}])
                receivers.append(receiver)
            return self._latency(self._culver(stack, site.port), receivers)

    def _latency(self, publisher: BareConnection, receivers: Sequence[BareConnection]) -> Figures:
        plan = self._plan
        warm_up_events = round(plan.rate * plan.warm_up_seconds)
        count = warm_up_events + round(plan.rate * plan.filter_seconds)
        payloads = numbered_payloads(QuotesWorkload().events(count, _SEED))
        found = measure_filter_latency(
            publisher,
            receivers,
            payloads,
            _matches(plan.filters, payloads),
            rate=plan.rate,
            warm_up_events=warm_up_events,
        )
        return {
            "p50_ms": found.p50_ms,
            "p99_ms": found.p99_ms,
            "send_late_p99_ms": found.late_p99_ms,
            "bytes": found.bytes_per_event * 1_000,
        }

    def _publications(self, in_flight: int, system: str) -> Figures:
        plan = self._plan
        events = QuotesWorkload().events(_EVENTS, _SEED)
        amount = (events, in_flight, plan.publication_seconds)
        with self._server(system) as server:
            if isinstance(server, SiteProcess):
                rate = asyncio.run(culver_publications(server.url, *amount))
            else:
                rate = asyncio.run(jetstream_publications(server.port, *amount))
        return {"publications_per_second": rate}

    def _set(self, system: str) -> Figures:
        plan = self._plan
        with self._site() as site, ExitStack() as stack:
            consumer = self._culver(stack, site.port, acknowledges=True)
            with site.client() as http:
                register_set(http, plan.set_filters, _SEED)
            follow_set(consumer, plan.set_filters)
            rate = measure_set(
                self._culver(stack, site.port),
                consumer,
                numbered_payloads(QuotesWorkload().events(_EVENTS, _SEED)),
                outstanding=plan.outstanding,
                warm_up_seconds=plan.warm_up_seconds,
                seconds=plan.set_seconds,
            )
        return {"deliveries_per_second": rate}

    # --- servers and connections ----------------------------------------------------------------------------

    @contextmanager
    def _server(self, system: str) -> Iterator[SiteProcess | RivalServer]:
        if system == "culver":
            with self._site() as site:
                yield site
        else:
            with (
                tempfile.TemporaryDirectory(prefix="culver-bench-", dir=self._plan.data_dir) as folder,
                RivalServer(system, self._programs[system], Path(folder)) as server,
            ):
                yield server

    @contextmanager
    def _site(self) -> Iterator[SiteProcess]:
        with (
            tempfile.TemporaryDirectory(prefix="culver-bench-", dir=self._plan.data_dir) as folder,
            SiteProcess("inline", Path(folder)) as site,
        ):
            yield site

    def _connection(self, stack: ExitStack, system: str, port: int) -> Any:
        if system == "culver":
            return self._culver(stack, port)
        return stack.enter_context(RIVAL_CONNECTIONS[system](port))

    def _culver(self, stack: ExitStack, port: int, *, acknowledges: bool = False) -> CulverConnection:
        return stack.enter_context(CulverConnection(port, self._plan.wire, acknowledges=acknowledges))


def _durable_subscriptions(http: httpx.Client, texts: Sequence[str]) -> list[str]:
    """Make durable subscriptions; returns their ids in the order of the filters."""
    ids: list[str] = []
    for at in range(0, len(texts), _CHUNK):
        filters = [{"filter": text} for text in texts[at : at + _CHUNK]]
        answer = http.post("/v1/subscriptions", json=filters).raise_for_status().json()
        ids += [subscription["id"] for subscription in answer["subscriptions"]]
    return ids


def _matches(filters: int, payloads: Sequence[NumberedPayload]) -> int:
    """How many pairs of an event and a filter match."""
    table = ClientFilters(filters, _SEED, range(filters))
    decode = msgspec.json.Decoder(Quote).decode
    return sum(table.matches(decode(payload.text)) for payload in payloads)
