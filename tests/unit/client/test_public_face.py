import subprocess
import sys

import pytest

import culver

_PROBE = """
import sys, time
start = time.process_time()
import culver
elapsed = time.process_time() - start
heavy = {"numpy", "pyarrow", "pyspark", "httpx", "websockets", "asyncio", "msgspec"} & set(sys.modules)
print(f"{elapsed:.4f}", *sorted(heavy))
"""


def test_the_public_names_are_these() -> None:
    names: list[str] = vars(culver)["__all__"]
    assert sorted(names) == [
        "AcceptedEvents",
        "Client",
        "ClientError",
        "ClientState",
        "Conflict",
        "ConnectionFailed",
        "CulverError",
        "FilterTest",
        "Gap",
        "GroupGap",
        "GroupMessage",
        "GroupStream",
        "HistoryEvent",
        "InvalidEvent",
        "InvalidRequest",
        "Mailbox",
        "Message",
        "Receipt",
        "RequestRefused",
        "Rows",
        "Stream",
        "Subscription",
        "SubscriptionSet",
        "SyncClient",
        "SyncGroupMessage",
        "SyncGroupStream",
        "SyncMessage",
        "SyncStream",
        "connect",
        "connect_sync",
    ]
    assert all(getattr(culver, name) is not None for name in names)
    assert {*names, "__version__"} <= set(dir(culver))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(culver, "nonsense")  # noqa: B009 - a type checker knows that there is none


def test_importing_culver_is_cheap_and_loads_nothing_heavy() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(3)
    ]
    assert [run[1:] for run in runs] == [[], [], []]
    assert min(float(run[0]) for run in runs) < 0.05
