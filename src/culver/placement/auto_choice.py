"""The choice of a placement, from what was measured, with the reason in a sentence.

Every placement in question is an option: what an event costs with it, and how much the fullest worker holds. The
quickest that fits into half of a worker's memory is taken and, where none fits, the one that needs least.

An existing index keeps its placement, unless that does not fit or another is clearly quicker: a change means building
everything anew at the start. In the same way `replicated` has precedence while it fits, because it has the fewest
files and tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from culver.matching import ClauseTable
from culver.placement.mpartition import REST, MPartition

INDEX_SHARE = 0.5
"""The part of a worker's memory that the index may take: while a new version is opened, the one before is in use."""
# A change is worth it where the seconds fall below this part of what they are.
_CLEARLY = 0.8


@dataclass(frozen=True, slots=True)
class PlacementOption:
    """`seconds` are those of all workers together for an event, `worker_bytes` what the fullest worker holds. `parts`
    tells people what the placement distinguishes."""

    name: str
    slices: int
    seconds: float
    worker_bytes: int
    parts: str = ""


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The bytes of an index with each registration once, and the bytes that each worker has."""

    index_bytes: int
    worker_bytes: int

    @property
    def budget(self) -> int:
        return int(self.worker_bytes * INDEX_SHARE)

    @property
    def fits_everywhere(self) -> bool:
        return self.index_bytes <= self.budget


@dataclass(frozen=True, slots=True)
class PlacementChoice:
    """A placement, and the reason in a sentence for people."""

    name: str
    slices: int
    reason: str


def choose_placement(
    options: Sequence[PlacementOption], memory: MemoryBudget, present: PlacementOption | None = None
) -> PlacementChoice:
    """Choose one of the options, of which there is at least one; `present` is the one in use."""
    least = min(options, key=lambda each: (each.worker_bytes, each.seconds))
    fitting = [each for each in options if each.worker_bytes <= memory.budget]
    if not fitting:
        workers = -(-memory.index_bytes // max(1, memory.budget))
        return _as_chosen(
            least,
            f"{_cost(least)}, which is more than half of the {_shown(memory.worker_bytes)} that it has; no placement "
            f"needs less. With {workers} workers it could be divided so that each part fits",
        )
    best = min(fitting, key=lambda each: each.seconds)
    if present not in fitting:
        present = next((each for each in fitting if each.name == "replicated"), None)
    if present is not None and best.seconds >= _CLEARLY * present.seconds:
        best = present
    others = [_compared(each, memory) for each in options if each is not best]
    return _as_chosen(best, "; ".join([_cost(best), *others]))


def choose_replicated(slices: int, memory: MemoryBudget) -> PlacementChoice:
    """Choose `replicated` without weighing: there is one slice, or a small index that fits into every worker."""
    index, each = _shown(memory.index_bytes), _shown(memory.worker_bytes)
    if slices > 1:
        reason = (
            f"the index of {index} fits into each worker's {each}, and so every event is matched once, by any of the "
            f"{slices} workers"
        )
    elif memory.fits_everywhere:
        reason = "there is one worker, and nothing to divide"
    else:
        workers = -(-memory.index_bytes // max(1, memory.budget))
        reason = (
            f"there is one worker, though the index of {index} takes more than half of its {each}; with {workers} "
            "workers it could be divided"
        )
    return PlacementChoice("replicated", slices, f"replicated: {reason}")


def describe_applications(placement: MPartition, table: ClauseTable) -> str:
    """Describe the layers of a placement for people: which attributes distinguish registrations like these, and how
    many of them. Different applications ask about different attributes, so each of them is a layer."""
    held = placement.assign(table)
    total = max(1, len(held))
    told: list[str] = []
    for layer, base in zip(placement.layers, placement.bases, strict=True):
        names = ", ".join(division.dimension[0].removeprefix("data.") for division in layer.divisions)
        members = np.count_nonzero(held[:, base : base + placement.slices].any(axis=1))
        told.append(f"{names} ({100 * members / total:.0f} %)")
    if not told:
        return "nothing tells registrations apart"
    rest = f"the rest {100 * np.count_nonzero(held[:, REST]) / total:.0f} %"
    count = "one application" if len(told) == 1 else f"{len(told)} applications"
    return f"{count}: {'; '.join([*told, rest])}"


def _as_chosen(option: PlacementOption, reason: str) -> PlacementChoice:
    parts = f" ({option.parts})" if option.parts else ""
    return PlacementChoice(option.name, option.slices, f"{option.name}: {reason}{parts}")


def _cost(option: PlacementOption) -> str:
    return f"an event takes {_microseconds(option)}, and a worker holds {_shown(option.worker_bytes)}"


def _compared(option: PlacementOption, memory: MemoryBudget) -> str:
    too_large = "" if option.worker_bytes <= memory.budget else ", which is too much"
    return f"with {option.name} {_microseconds(option)} and {_shown(option.worker_bytes)}{too_large}"


def _microseconds(option: PlacementOption) -> str:
    return f"{1e6 * option.seconds:.3g} \u00b5s"


def _shown(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 999.95 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" or amount == round(amount) else f"{amount:.1f} {unit}"
