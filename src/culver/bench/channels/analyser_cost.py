"""What the load analyser takes of a server's CPU while hundreds of clients use hundreds of channels.

The server counts the microseconds of every command. What it uses besides, to read commands and to write replies, is
divided evenly among all commands. The analyser shares a process with the dispatcher, which has nothing else to do
while no channel moves.
"""

import asyncio
from dataclasses import dataclass

from culver.bench.bench_frame import BenchmarkFailed, Tell
from culver.bench.channels.bench_service import bench_service
from culver.bench.channels.channels_findings import ChannelFinding, ExperimentResult
from culver.bench.channels.channels_plan import ChannelsPlan
from culver.bench.channels.clients.client_crowd import ClientCrowd
from culver.bench.channels.clients.client_process import CrowdTask
from culver.channels.channel_service import ServiceSettings
from culver.channels.servers.redis_link import RedisLink

#: Commands that only the analyser sends while nothing changes.
_QUESTIONS = ("info", "pubsub|numsub", "client|list", "config|get", "set")
_TARGET_PERCENT = 5.0


@dataclass(frozen=True, slots=True)
class ServerUse:
    """CPU seconds of a server's process, and calls and seconds of each command, since its start."""

    cpu_seconds: float
    calls: dict[str, int]
    seconds: dict[str, float]

    def since(self, earlier: "ServerUse") -> "ServerUse":
        return ServerUse(
            self.cpu_seconds - earlier.cpu_seconds,
            {name: calls - earlier.calls.get(name, 0) for name, calls in self.calls.items()},
            {name: seconds - earlier.seconds.get(name, 0.0) for name, seconds in self.seconds.items()},
        )

    def share(self, name: str, calls: int | None = None) -> float:
        """The part of the CPU that a command takes, or so many calls of it, from reading it to writing the reply."""
        made = self.calls.get(name, 0)
        if not made or self.cpu_seconds <= 0.0:
            return 0.0
        besides = max(0.0, self.cpu_seconds - sum(self.seconds.values())) / sum(self.calls.values())
        each = self.seconds[name] / made + besides
        return each * (made if calls is None else calls) / self.cpu_seconds


def read_use(answer: bytes) -> ServerUse:
    """Reads the answer to ``INFO all``: lines as ``used_cpu_sys:0.25`` and ``cmdstat_get:calls=3,usec=7,...``. The
    kernel's own figures come in steps of 10 ms, which a quick run does not reach."""
    cpu_seconds, calls, seconds = 0.0, {}, {}
    for line in answer.decode().splitlines():
        name, _, values = line.partition(":")
        if name in ("used_cpu_sys", "used_cpu_user"):
            cpu_seconds += float(values)
        elif name.startswith("cmdstat_"):
            fields = dict(part.partition("=")[::2] for part in values.split(","))
            calls[name.removeprefix("cmdstat_")] = int(fields["calls"])
            seconds[name.removeprefix("cmdstat_")] = int(fields["usec"]) / 1e6
    return ServerUse(cpu_seconds, calls, seconds)


async def measure_analyser(plan: ChannelsPlan, tell: Tell) -> ExperimentResult:
    settings = ServiceSettings(first_servers=1, balance=False)
    async with bench_service(None, 1, settings) as bench:
        task = CrowdTask(
            "players",
            [bench.url],
            rate=plan.analyser_rate,
            payload_bytes=plan.payload_bytes,
            tiles_across=plan.analyser_tiles_across,
        )

        async def used(link: RedisLink) -> ServerUse:
            reply = await link.request((b"INFO", b"all"))
            if not isinstance(reply, bytes):
                raise BenchmarkFailed("the server does not count its commands")
            return read_use(reply)

        async with (
            ClientCrowd(bench.network, task, plan.client_processes) as crowd,
            RedisLink(bench.service.ring.servers[0].url) as link,
        ):
            await crowd.reached(plan.analyser_players)
            await crowd.measure(plan.settle_seconds)
            before, dispatcher_before = await used(link), bench.dispatcher_cpu_seconds()
            began = asyncio.get_running_loop().time()
            figures = await crowd.measure(plan.analyser_seconds)
            use, dispatcher = (
                (await used(link)).since(before),
                bench.dispatcher_cpu_seconds() - dispatcher_before,
            )
            seconds = asyncio.get_running_loop().time() - began
    # One INFO is this benchmark's own.
    asked = {name: use.calls.get(name, 0) - (name == "info") for name in _QUESTIONS}
    shares = {name: 100 * use.share(name, calls) for name, calls in asked.items()}
    # A client that publishes reports once a second.
    reports = round(min(plan.analyser_players * seconds, use.calls.get("publish", 0)))
    load = (
        f"{figures.sent:,.0f} publications/s, {figures.received:,.0f} deliveries/s, "
        f"{plan.analyser_tiles_across**2} channels"
    )
    found = (
        (
            "analyser's questions, of the server's CPU",
            sum(shares.values()),
            f"target at most {_TARGET_PERCENT:g}; "
            + ", ".join(f"{name} {share:.2g}" for name, share in shares.items() if share),
        ),
        (
            "clients' load reports, of the server's CPU, at most",
            100 * use.share("publish", reports),
            "as if a report cost as much as a publication to all subscribers of a tile",
        ),
        (
            "dispatcher and analyser, of a core",
            100 * dispatcher / seconds,
            f"target at most {_TARGET_PERCENT:g}",
        ),
        (
            "dispatcher and analyser, against the server's CPU",
            100 * dispatcher / max(use.cpu_seconds, 1e-3),
            "a process of its own, beside the server",
        ),
        ("server, of a core", 100 * use.cpu_seconds / seconds, load),
    )
    result = ExperimentResult()
    for what, percent, note in found:
        tell(f"{what}: {percent:.2f} % ({note})")
        result.findings.append(
            ChannelFinding(
                experiment="analyser",
                what=what,
                unit="%",
                ours=percent,
                system="channels",
                servers=1,
                clients=plan.analyser_players,
                note=note,
            )
        )
    return result
