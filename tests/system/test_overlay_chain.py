"""Sites in a chain, as separate processes under traffic: kills, and a site that is cut off for a while.

Three sites, and the one in transit is killed. With `--full` there are five, each is killed 20 times, and the last one
is cut off for ten minutes; `-s` shows the figures.
"""

import random
import time
from pathlib import Path

import pytest

from support.overlay_chain import SiteChain, publishing, running_chain, wait_for

pytestmark = pytest.mark.system

RATE = 500.0


def p99(latencies: list[float]) -> float:
    return latencies[int(0.99 * (len(latencies) - 1))]


def cut_off(chain: SiteChain, seconds: float, calm_seconds: float) -> dict[str, float]:
    """Cut the last site off for a while, and measure what the others notice, and how it catches up."""
    began = time.monotonic()
    time.sleep(calm_seconds)
    cut = time.monotonic()
    chain.cut()
    wait_for(lambda: not chain.is_connected(), "the others notice")
    time.sleep(seconds)
    mended = time.monotonic()
    reader = chain.readers[-1]
    behind = sum(len(each.acknowledged) for each in chain.publishers) - sum(
        len(reader.received[each.site].numbers) for each in chain.publishers
    )
    chain.mend()
    routes = wait_for(chain.is_connected, "routes after the cut")
    back = time.monotonic()

    def has_caught_up() -> bool:
        return all(
            len(reader.received[each.site].numbers) > len(each.acknowledged) - RATE / 4
            for each in chain.publishers
        )

    took = max(wait_for(has_caught_up, "catching up", 600), 0.01)
    time.sleep(1.0)
    return {
        "behind": behind,
        "routes_seconds": routes,
        "catch_up_per_second": behind / took + RATE,
        "p99_before": p99(chain.latencies(-2, "s0", began, cut)),
        "p99_cut": p99(chain.latencies(-2, "s0", cut, mended)),
        "p99_catching_up": p99(chain.latencies(-2, "s0", mended, back + took + 1.0)),
    }


@pytest.mark.thorough
@pytest.mark.slow(seconds=25)
@pytest.mark.timeout(3600)
def test_chain_of_sites_loses_and_doubles_nothing(tmp_path: Path, full_length: bool) -> None:
    chooser = random.Random(5)
    with running_chain(tmp_path, 5 if full_length else 3) as chain:
        with publishing(chain, RATE, 0, 2):
            figures = cut_off(chain, 600.0 if full_length else 2.0, 30.0 if full_length else 2.0)
            victims = [number for number in range(len(chain.services)) for _ in range(20)]
            chooser.shuffle(victims)
            victims = victims if full_length else [1]
            routes = [chain.kill(number) for number in victims]
        figures["slowest_routes_seconds"] = max(routes)
        figures["acknowledged"] = sum(len(each.acknowledged) for each in chain.publishers)
        print("\n" + "  ".join(f"{name} {value:.4g}" for name, value in figures.items()))  # noqa: T201
        chain.check()
    assert figures["routes_seconds"] < 10
    assert figures["slowest_routes_seconds"] < 10
    assert figures["catch_up_per_second"] >= 3 * RATE
    if full_length:
        assert figures["p99_catching_up"] <= 1.5 * figures["p99_before"]
        assert figures["p99_cut"] <= 1.5 * figures["p99_before"]
