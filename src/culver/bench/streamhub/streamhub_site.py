"""Starts whole sites with W2's subscriptions, with different settings on the same files."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

from culver.bench.bench_frame import Tell
from culver.bench.bulk_registration import register_workload
from culver.bench.site_process import SiteProcess
from culver.bench.streamhub.sliced_index import workload
from culver.bench.streamhub.streamhub_plan import SEED, StreamhubPlan


class Sites:
    """One data directory, on which at most one site runs. A site that divides its index differently rebuilds it
    from the registry before it is ready."""

    def __init__(self, directory: Path, plan: StreamhubPlan) -> None:
        self._directory = directory
        self._plan = plan

    @property
    def log(self) -> Path:
        return self._directory / "site" / "log"

    def started(self, engine: str, settings: Mapping[str, str | int]) -> SiteProcess:
        return SiteProcess(engine, self._directory, command=self._plan.command, settings=settings)


@contextlib.contextmanager
def sites_with_subscriptions(plan: StreamhubPlan, tell: Tell) -> Iterator[Sites]:
    """Yield a data directory with `plan.whole_subscriptions` registered, and delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix="culver-bench-", dir=plan.data_dir) as directory:
        sites = Sites(Path(directory), plan)
        tell(f"registering {plan.whole_subscriptions:,} subscriptions")
        with sites.started("inline", {}) as site, client(site) as http:
            register_workload(
                http, workload(), plan.whole_subscriptions, SEED, settle_seconds=plan.settle_seconds
            )
        yield sites


def client(site: SiteProcess) -> httpx.Client:
    return httpx.Client(base_url=site.url, trust_env=False, timeout=120.0)
