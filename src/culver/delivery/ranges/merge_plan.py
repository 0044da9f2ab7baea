"""Which ranges become one file.

Merging by level keeps the number of files small and rewrites each row a handful of times, not once per merge.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from culver.delivery.ranges.retained_ranges import RetainedRange


@dataclass(frozen=True, slots=True)
class MergeLevel:
    """Files below `below_bytes` are merged once there are more than `most` of them."""

    below_bytes: int
    most: int


LEVELS = (MergeLevel(512 * 1024, 64), MergeLevel(8 * 1024 * 1024, 16))
_LARGEST_MERGE_BYTES = 64 * 1024 * 1024


def plan_storing(ranges: Iterable[RetainedRange]) -> list[list[RetainedRange]]:
    """Groups of adjacent ranges that are in memory only. Each becomes one file."""
    groups: list[list[RetainedRange]] = []
    total = 0
    for item in ranges:
        if item.stored:
            continue
        if groups and total + item.size <= _LARGEST_MERGE_BYTES and item.continues(groups[-1]):
            groups[-1].append(item)
            total += item.size
        else:
            groups.append([item])
            total = item.size
    return groups


def plan_merges(
    ranges: Iterable[RetainedRange], levels: Sequence[MergeLevel] = LEVELS
) -> list[list[RetainedRange]]:
    """Groups of adjacent files, each worth merging into one. Returns the groups of one level at a time."""
    everything = [item for item in ranges if item.stored]
    smaller_than = 0
    for level in levels:
        groups = [group for group in _groups(everything, level.below_bytes) if len(group) > 1]
        due = sum(item.size >= smaller_than for group in groups for item in group)
        if due > level.most:
            return groups
        smaller_than = level.below_bytes
    return []


def _groups(ranges: Sequence[RetainedRange], below_bytes: int) -> Iterator[list[RetainedRange]]:
    """Runs of adjacent small ranges. The size of a run is bounded, so that one merge fits into memory."""
    most_bytes = min(8 * below_bytes, _LARGEST_MERGE_BYTES)
    group: list[RetainedRange] = []
    total = 0
    for item in ranges:
        if group and (
            item.size >= below_bytes or total + item.size > most_bytes or not item.continues(group)
        ):
            yield group
            group, total = [], 0
        if item.size < below_bytes:
            group.append(item)
            total += item.size
    if group:
        yield group
