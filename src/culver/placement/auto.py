"""Which placement to take: from what was measured, with the reason in a sentence.

the index fits into every worker                    replicated: an event is matched once, and nothing is shuffled
else, most registrations have a selective term      event-space: once, against a part of the index
else                                                hashed: by all slices, each against its own part

per event          replicated    event-space                   hashed
index in a slice   all           1 - s + s / n                 1 / n            s: share of the registrations that
work               c             c (1 - s + s / n) + sending   c + n sending       one dimension tells apart
                                                                                c: matching an event, n: slices
"""

from dataclasses import dataclass

_INDEX_SHARE = 0.5  # of a worker's memory: while a new version is opened, the one before is still in use
_SENDING_SECONDS = 0.5e-6  # of one event to one slice: rows are taken out of a batch and results put together


@dataclass(frozen=True, slots=True)
class Measured:
    index_bytes: int  # of all registrations together
    worker_bytes: int  # the memory of each worker
    workers: int
    match_seconds: float  # for one event, against all registrations
    selective_share: float  # of the registrations, those that one dimension keeps off some slices


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    slices: int
    reason: str  # a sentence for people


def choose(measured: Measured) -> Choice:
    """The placement with the least work among those that fit, and as many slices as there are workers."""
    slices = max(1, measured.workers)
    budget = int(measured.worker_bytes * _INDEX_SHARE)
    index, memory = _shown(measured.index_bytes), _shown(measured.worker_bytes)
    if slices == 1:
        if measured.index_bytes <= budget:
            return Choice("replicated", 1, "replicated: there is one worker, and nothing to divide")
        return Choice(
            "replicated",
            1,
            f"replicated: there is one worker, though the index of {index} takes more than half of its {memory}; "
            f"with {_workers_needed(measured.index_bytes, budget)} workers it could be divided",
        )
    if measured.index_bytes <= budget:
        return Choice(
            "replicated",
            slices,
            f"replicated: the index of {index} fits into each worker's {memory}, and so every event is matched "
            f"once, by any of the {slices} workers",
        )
    part = 1.0 - measured.selective_share + measured.selective_share / slices
    divided = measured.match_seconds * part + _SENDING_SECONDS
    hashed = measured.match_seconds + slices * _SENDING_SECONDS
    too_large = f"the index of {index} takes more than half of each worker's {memory}"
    percent = f"{100 * measured.selective_share:.0f} %"
    if measured.index_bytes * part <= budget and divided <= hashed:
        return Choice(
            "event-space",
            slices,
            f"event-space: {too_large}, but one dimension tells {percent} of the registrations apart, so that each "
            f"of {slices} slices holds about {_shown(int(measured.index_bytes * part))} and an event goes to one",
        )
    each = measured.index_bytes // slices
    reason = (
        f"hashed: {too_large}, and no dimension tells enough registrations apart ({percent}); each of {slices} "
        f"slices holds {_shown(each)}, and every event goes to all"
    )
    if each > budget:
        reason += (
            f"; that is still too much, {_workers_needed(measured.index_bytes, budget)} workers would do"
        )
    return Choice("hashed", slices, reason)


def _workers_needed(index_bytes: int, budget: int) -> int:
    return -(-index_bytes // max(1, budget))


def _shown(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 999.95 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" or amount == round(amount) else f"{amount:.1f} {unit}"
