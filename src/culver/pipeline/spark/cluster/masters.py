"""Addresses of Spark masters: whether one is valid, whether it answers, and how many cores it promises.

Spark itself retries a master that does not answer for a minute, and then writes a page to its log.
"""

import os
import re
import socket

from culver.errors import InvalidConfiguration

_KNOWN = re.compile(r"local(-cluster)?(\[[^\]]+\])?|yarn|k8s://.+|spark://[^/,\s]+:\d+(,[^/,\s]+:\d+)*")
_CONNECT_SECONDS = 3.0


def check_master(master: str) -> None:
    """Raises InvalidConfiguration for an address that Spark does not understand."""
    if not _KNOWN.fullmatch(master):
        raise InvalidConfiguration(
            f"{master!r} is not the address of a Spark master; it is local[*], spark://HOST:PORT, yarn or k8s://...",
            field="pipeline.spark_master",
        )


def trouble_with(master: str) -> str | None:
    """Why a standalone master cannot be reached, as a sentence; None if one of its addresses answers.

    Blocks for some seconds at most. It cannot check YARN and Kubernetes, and returns None for them."""
    if not master.startswith("spark://"):
        return None
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
            return None
        except (OSError, OverflowError) as exc:
            reasons.append(f"{address}: {getattr(exc, 'strerror', None) or exc}")
    return f"no Spark master answers at {master} ({'; '.join(reasons)})"


def parallelism(master: str) -> int:
    """How many ranges a large batch is cut into: the cores of a local master, or a guess for a cluster until it has
    reported its cores."""
    inside = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster") and len(inside) == 3:
        return max(1, int(inside[0]) * int(inside[1]))
    if master.startswith("local"):
        return int(inside[0]) if inside[0].isdigit() else len(os.sched_getaffinity(0)) if inside[0] else 1
    return 8
