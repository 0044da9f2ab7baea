"""What the address of a Spark master tells. Imports no Spark: the site asks, too."""

import os


def parallelism(master: str) -> int:
    """Into how many ranges a large batch is cut: the cores of a local master, or a guess for a cluster."""
    inside = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster") and len(inside) == 3:
        return max(1, int(inside[0]) * int(inside[1]))
    if master.startswith("local"):
        return int(inside[0]) if inside[0].isdigit() else len(os.sched_getaffinity(0)) if inside[0] else 1
    return 8
