"""As many executors as slices need: when Culver says so, and when the user's settings do."""

from pathlib import Path

import pytest

from culver.pipeline.spark.driver import executors_for
from culver.pipeline.spark.session_settings import executors_follow_slices, session_settings

CLUSTER = "spark://head:7077"


@pytest.mark.parametrize(
    ("slices", "tasks_each", "executors"), [(1, 1, 1), (3, 1, 3), (3, 2, 2), (4, 2, 2), (1, 8, 1), (9, 8, 2)]
)
def test_every_slice_has_a_task_at_the_same_time(slices: int, tasks_each: int, executors: int) -> None:
    assert executors_for(slices, tasks_each) == executors


@pytest.mark.parametrize(
    ("master", "elastic", "own", "follow"),
    [
        pytest.param(CLUSTER, True, {}, True, id="elastic on a cluster"),
        pytest.param("yarn", True, {"spark.executor.cores": "4"}, True, id="with larger executors"),
        pytest.param(CLUSTER, False, {}, False, id="not elastic"),
        pytest.param("local[2]", True, {}, False, id="one machine"),
        pytest.param(CLUSTER, True, {"spark.dynamicAllocation.enabled": "false"}, False, id="a fixed number"),
        pytest.param(
            CLUSTER, True, {"spark.dynamicAllocation.maxExecutors": "4"}, False, id="by Spark's rule"
        ),
    ],
)
def test_executors_follow_slices_unless_settings_say_otherwise(
    master: str, elastic: bool, own: dict[str, str], follow: bool
) -> None:
    assert executors_follow_slices(master, elastic, own) is follow


def test_own_settings_win_over_those_of_allocation() -> None:
    settings = session_settings(CLUSTER, Path("work"), {"spark.executor.cores": "4"}, allocate=True)
    assert settings["spark.dynamicAllocation.enabled"] == "true"
    assert settings["spark.executor.cores"] == "4"
    assert "spark.dynamicAllocation.enabled" not in session_settings(CLUSTER, Path("work"), {})
