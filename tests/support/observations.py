"""Observations of a site that works at a steady pace."""

from culver.control.site_observation import (
    IndexSlice,
    PlacementInfo,
    SiteObservation,
    SiteQueues,
)
from culver.pipeline.engine_totals import (
    BatchTotals,
    EngineObservation,
    FileTotals,
    RecentBatch,
    SliceTotals,
)


def observation(uptime: float, rounds: int) -> SiteObservation:
    """A site that has done the same so many times."""
    n = rounds
    return SiteObservation(
        engine="spark",
        state="running",
        ready=True,
        uptime_seconds=uptime,
        log_next_offset=2_000 * n,
        subscriptions=1_500,
        placement=PlacementInfo("hashed", 2, "hashed: as the setting pipeline.placement says"),
        queues=SiteQueues(commit=1, index=2, match=3_000, accept=40, mailboxes=50_000),
        index=(IndexSlice(0, 500, 4_000), IndexSlice(1, 1_000, 8_000)),
        pipeline=EngineObservation(
            position=1_000 * n,
            ahead=40,
            waiting_files=1,
            blocks=n,
            slices=(
                SliceTotals(0, 1_000 * n, 1_000 * n, 3_000 * n, 0.02 * n, 0.10 * n, 0.08 * n),
                SliceTotals(1, 1_000 * n, 1_000 * n, 9_000 * n, 0.08 * n, 0.30 * n, 0.22 * n),
            ),
            written=FileTotals(3 * n, 6_000_000 * n, 0.1 * n),
            workers={"host:1": n, "host:2": n, "host:3": 7},
            batches=BatchTotals(
                3 * n,
                1_000 * n,
                0.9 * n,
                recent=(RecentBatch(9_999, 9.0), *(RecentBatch(10 * i, 0.01 * i) for i in range(1, 4))),
                stages={
                    "triggerExecution": 0.4,
                    "latestOffset": 0.3,
                    "addBatch": 0.2,
                    "walCommit": 0.05,
                    "getBatch": 0.0,
                },
            ),
            spark_ui="http://127.0.0.1:4040",
        ),
        deliveries_sent=100 * n,
    )
