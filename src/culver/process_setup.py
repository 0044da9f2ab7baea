"""How every process of a site that serves clients is set up: interpreter, garbage collector, event loop, log."""

import gc
import sys
from collections.abc import Coroutine
from typing import Any

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

# A thread that computes may keep the GIL for 5 ms by default; the event loop must not wait that long.
_SWITCH_SECONDS = 0.00005
# The garbage collector stops the loop: for tens of milliseconds if it walks all objects of 40,000 subscriptions, and
# by default every few seconds. A site hardly ever drops cycles, so full collections are rare here, and young ones
# small, below half a millisecond.
_COLLECTION_THRESHOLDS = (3_000, 30, 50)


def run_process(main: Coroutine[Any, Any, int]) -> int:
    """Run the main coroutine of a process to its end; returns the exit code."""
    import uvloop

    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    return uvloop.run(main)


def freeze_objects() -> None:
    """Exempt everything that start-up has made from garbage collection; full collections would walk it in vain."""
    gc.collect()
    gc.freeze()
