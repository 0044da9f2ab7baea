"""Options and order of the whole suite, and what no test may leave behind."""

import gc
from collections.abc import Generator, Iterator

import pytest

from culver.process_setup import freeze_objects
from support.leaks import Holdings, left_since


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run the long tests at full length (50,000 events and ten kills, a million pairs)",
    )


@pytest.fixture(scope="session")
def full_length(request: pytest.FixtureRequest) -> bool:
    """Whether the long tests run at full length."""
    return bool(request.config.getoption("--full"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector away from what collection makes, which lives to the end: modules and tests. It
    would look at all of it during collection, and in every full collection of a test for 0.2 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest tests begin first, so that no worker is left alone with one of them at the end. Each worker begins
    with an equal part of all tests, in their order: each part gets its share of the long ones. Tests that belong
    together stay together: what they share would start once in every worker."""
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("together")
        units.setdefault(marker.args[0] if marker else item.nodeid, []).append(item)
    ordered = sorted(units.values(), key=lambda unit: sum(map(_seconds, unit)), reverse=True)
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = [item for first in range(workers) for unit in ordered[first::workers] for item in unit]


def _seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("slow")
    return float(marker.kwargs["seconds"]) if marker else 0.0


@pytest.fixture(autouse=True, scope="module")
def what_stays_is_frozen() -> None:
    """Keeps the garbage collector away from what the modules before this one have left in caches."""
    freeze_objects()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails a test that leaves a thread, a child process or an open file. A module whose tests share what opens them
    has a fixture of this name that does nothing."""
    before = Holdings.now()
    yield
    for phase in (
        "setup",
        "call",
    ):  # what is logged of an error holds on to its frames, and all that is open there
        caplog.get_records(phase).clear()
    left = left_since(before)
    assert not any(left), left
