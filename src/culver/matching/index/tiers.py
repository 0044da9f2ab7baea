"""Which segments to merge, so that their count stays logarithmic and each registration is rewritten rarely.

Sizes fall into tiers, each four times the one below; the lowest takes everything up to 256 registrations. At
most one segment stays in the lowest tier and three in any other: one more, and the tier's segments become
one, which may fill the next tier. A segment in which most registrations are dead is rewritten too.
"""

from collections.abc import Sequence

_SMALLEST = 256
_GROWTH = 4
_PER_TIER = 3


def choose(sizes: Sequence[int], dead: Sequence[int]) -> list[int]:
    """The places of the segments to merge into one now, ascending; none if all is well. `sizes` counts the
    registrations in each segment, `dead` those that a merge would drop. After that merge, ask again."""
    chosen = [place for place, size in enumerate(sizes) if size == 0 or 2 * dead[place] > size]
    while True:
        merged = sum(sizes[place] - dead[place] for place in chosen)
        more = _full_tier(sizes, chosen, merged)
        if not more:
            return sorted(chosen)
        chosen += more


def _full_tier(sizes: Sequence[int], chosen: list[int], merged: int) -> list[int]:
    """The members of the lowest overfull tier, once `chosen` have become one segment of size `merged`; those
    that are chosen already are left out."""
    tiers: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        if place not in chosen:
            tiers.setdefault(_tier(size), []).append(place)
    result = _tier(merged) if merged else -1
    for tier in sorted(tiers):
        room = (1 if tier == 0 else _PER_TIER) - (1 if tier == result else 0)
        if len(tiers[tier]) > room:
            return tiers[tier]
    return []


def _tier(size: int) -> int:
    tier = 0
    while size > _SMALLEST:
        size //= _GROWTH
        tier += 1
    return tier
