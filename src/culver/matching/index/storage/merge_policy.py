"""The merge policy picks segments to merge: few remain, and each registration is rewritten rarely.

While subscriptions come and go (`choose`), sizes fall into tiers, each four times the one below; the lowest takes
everything up to 256 registrations. At most one segment stays in the lowest tier and three in any other. With one
more, the segments of the tier become one, which may fill the next tier. Segments of more than a million are large
enough. A segment with a quarter of its registrations dead is rewritten too, alone if it is that large.

When nothing has changed for a while (`choose_when_quiet`), one or two segments should be left, because every segment
costs every event. All become one, as far as that takes at most about a second and is worth it: a segment is not
rewritten for the sake of a few registrations beside it.

    sizes                              quiet
    40,000  9,000  9,000  700  3       one of 58,703
    40,000  700  3                     40,000 and one of 703: less than an eighth of the larger
"""

from collections.abc import Sequence

SMALLEST = 256
"""So few registrations are rewritten with every change."""
_GROWTH = 4
_PER_TIER = 3
# A segment with more registrations is not merged with others.
_LARGEST = 1 << 20
# In registrations: about 50 ms of work, which is always worth it.
_QUIET_FREE = 1 << 14
# About a second of work.
_QUIET_MOST = 1 << 18
# A segment is rewritten if what is added is at least this part of it.
_QUIET_WORTH = 8


def choose(sizes: Sequence[int], dead: Sequence[int]) -> list[int]:
    """The places of the segments to merge into one now, ascending; none if nothing is to be done. `sizes` counts the
    registrations in each segment, `dead` those that a merge would drop. After that merge, ask again."""
    chosen = [place for place, size in enumerate(sizes) if size == 0 or 4 * dead[place] > size]
    for place in chosen:
        if sizes[place] > _LARGEST:
            return [place]
    while True:
        merged = sum(sizes[place] - dead[place] for place in chosen)
        more = _full_tier(sizes, chosen, merged)
        if not more:
            return sorted(chosen)
        chosen += more


def choose_when_quiet(sizes: Sequence[int], dead: Sequence[int]) -> list[int]:
    """Do as `choose`, for an index that has not changed for a while."""
    smallest_first = sorted(range(len(sizes)), key=lambda place: sizes[place])
    best = merged = 0
    for count, place in enumerate(smallest_first, 1):
        size, total = sizes[place], merged + sizes[place] - dead[place]
        if total > _QUIET_MOST:
            break
        joined = count > 1 and (total <= _QUIET_FREE or merged * _QUIET_WORTH >= size)
        if joined or dead[place] * _QUIET_WORTH > size:
            best = count
        merged = total
    return sorted(smallest_first[:best])


def _full_tier(sizes: Sequence[int], chosen: list[int], merged: int) -> list[int]:
    """The other segments of the lowest overfull tier, once `chosen` have become one of size `merged`."""
    tiers: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        if place not in chosen and size <= _LARGEST:
            tiers.setdefault(_tier(size), []).append(place)
    result = _tier(merged) if merged else -1
    for tier in sorted(tiers):
        room = (1 if tier == 0 else _PER_TIER) - (1 if tier == result else 0)
        if len(tiers[tier]) > room:
            return tiers[tier]
    return []


def _tier(size: int) -> int:
    tier = 0
    while size > SMALLEST:
        size //= _GROWTH
        tier += 1
    return tier
