"""The three operators as pure functions on Arrow batches, the same in every engine.

StreamHub, section 3.2: the access point (AP) sends each event to the slices that may match it, matching (M) finds the
subscriptions, and the exit point (EP) joins the partial results and groups them for delivery.

    log  --access_point-->  batches  --route-->  M slice 0  --found--,
                                            -->  M slice 1  --found--+--exit_point--> notifications
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from culver.errors import StorageCorrupt
from culver.jit import Integers
from culver.log import DamagedEvents
from culver.matching import Found, Index, Matched, SearchMemory
from culver.model.columns import concat
from culver.pipeline.notifications import Notifications
from culver.pipeline.operator_work import MatchMeter, SliceWork, with_join_time
from culver.placement import NOWHERE, ChosenSets, Forwarding, Placement, SetLoad

SetShare = tuple[int, NDArray[np.bool_] | None]
"""A set that a slice gets events for, and a mask of these events; None: all events."""

_WHOLE: Sequence[SetShare] = ((0, None),)
# The largest batch that is joined from pieces.
_MOST_BYTES = 256 * 1024 * 1024
# The most columns times events of a batch that is joined from pieces with different attributes.
_MOST_CELLS = 2_000_000


def access_point(start: int, end: int, pieces: Iterable[tuple[int, pa.RecordBatch]]) -> list[pa.RecordBatch]:
    """Joins the pieces that the log holds into few batches with the events of `[start, end)`, in order.

    Pieces with different attributes join only while the batch stays small: a thousand kinds of events, each with a
    hundred names of its own, would make a table that is mostly empty. A batch also stays below the bytes that Arrow's
    offsets reach. Raises StorageCorrupt where a piece is missing: no event may be skipped in silence."""
    joined: list[pa.RecordBatch] = []
    group: list[pa.RecordBatch] = []
    columns: set[str] = set()
    rows = size = 0
    expected = start
    for offset, piece in pieces:
        if offset == start and offset + piece.num_rows == end:
            return [piece]  # most ranges of few events are one piece
        if offset != expected:
            break
        expected += piece.num_rows
        names = columns.union(piece.schema.names)
        sparse = len(names) > len(columns) and len(names) * (rows + piece.num_rows) > _MOST_CELLS
        if group and (sparse or size + piece.nbytes > _MOST_BYTES):
            joined.append(concat(group))
            group, names, rows, size = [], set(piece.schema.names), 0, 0
        group.append(piece)
        columns = names
        rows += piece.num_rows
        size += piece.nbytes
    if expected != end:
        raise StorageCorrupt(
            f"the log ends or breaks at offset {expected}, before {end}, which was acknowledged"
        )
    return [*joined, concat(group)] if group else joined


def route_events(
    placement: Placement, forwarding: Forwarding, load: SetLoad, start: int, parts: Sequence[pa.RecordBatch]
) -> list[ChosenSets]:
    """Where the access point sends the events of a block, part by part. Every task works this out for itself from the
    same placement and the same load, which costs less than moving events."""
    routes = [placement.route(part).choices for part in parts]
    choices = [_together(each) for each in zip(*routes, strict=True)]
    at_once = np.zeros(sum(part.num_rows for part in parts))  # all events of a block count as simultaneous
    chosen = forwarding.choose(load, choices, at_once, start)
    if len(parts) == 1:
        return [chosen]
    ends = np.cumsum([part.num_rows for part in parts])[:-1]
    sets, slices = ([np.split(each, ends) for each in column] for column in (chosen.sets, chosen.slices))
    return [
        ChosenSets(*each) for each in zip(zip(*sets, strict=True), zip(*slices, strict=True), strict=True)
    ]


def _together(choices: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """One array of the choices of all parts."""
    if len(choices) == 1:
        return choices[0]
    joined = np.full((sum(map(len, choices)), max(each.shape[1] for each in choices)), NOWHERE)
    first = 0
    for each in choices:
        joined[first : first + len(each), : each.shape[1]] = each
        first += len(each)
    return joined


def events_for_slice(own: int, chosen: ChosenSets) -> list[SetShare]:
    """The events that one slice gets, for each of its sets."""
    sent: list[SetShare] = []
    for sets, slices in zip(chosen.sets, chosen.slices, strict=True):
        mine = slices == own
        numbers = np.flatnonzero(np.bincount(sets[mine])).tolist()
        sent += [(number, mine if len(numbers) == 1 else mine & (sets == number)) for number in numbers]
    return sent


def match_events(
    index_of: Callable[[int], Index],
    start: int,
    parts: Sequence[pa.RecordBatch],
    memory: SearchMemory,
    sent: Sequence[Sequence[SetShare]] | None = None,
    meter: MatchMeter | None = None,
) -> Iterator[Found]:
    """Finds the registrations of a slice that each event of a block satisfies and in whose time it falls. `index_of`
    gives the index of a set. `sent` says which events of each part the slice gets, and for which of its sets; None
    sends all events to set 0, the only one. `meter` counts the time, without that between two findings."""
    meter = MatchMeter() if meter is None else meter
    row = 0
    for place, part in enumerate(parts):
        shares = _WHOLE if sent is None else sent[place]
        count = part.num_rows
        meter.sent += _events_of(shares, count)
        for number, chosen in shares:
            events = count if chosen is None else int(np.count_nonzero(chosen))
            seconds, began = 0.0, perf_counter()
            for found in index_of(number).find(part, start, row, chosen, memory):
                seconds += perf_counter() - began
                yield found
                began = perf_counter()
            meter.add(number, events, seconds + perf_counter() - began)
        row += count


def _events_of(shares: Sequence[SetShare], count: int) -> int:
    """How many events a slice gets, each counted once, for one set or for several."""
    if shares is _WHOLE:
        return count
    masks = [mask for _, mask in shares if mask is not None]
    if len(masks) < len(shares):
        return count
    return int(np.count_nonzero(np.logical_or.reduce(masks))) if masks else 0


def exit_point(
    start: int,
    version: int,
    parts: Sequence[pa.RecordBatch],
    found: Sequence[Matched],
    memory: SearchMemory,
    work: tuple[SliceWork, ...] = (),
) -> Notifications:
    """Groups by registration all that was found, in one slice or in several. `work` is the work so far."""
    began = perf_counter()
    sizes = payload_sizes(parts, memory)
    groups = memory.grouping.group(found)
    for array in groups:
        array.flags.writeable = False  # like the arrays of a mapped file
    work = with_join_time(work, perf_counter() - began)
    return Notifications(start, start + len(sizes), version, *groups, sizes, work)


def announce_damage(damage: DamagedEvents, version: int, numbers: Integers, last: Integers) -> Notifications:
    """The result for events that cannot be read, in place of what the three operators would find: whoever might have
    got one of them hears of it. `numbers` are those of all registrations in effect, and `last` has the last of the
    events that concerns each; a registration may occur several times."""
    numbers, places = np.unique(numbers, return_index=True)
    rows = (last[places] - damage.start).astype(np.uint16)
    groups = numbers, np.arange(len(numbers) + 1), rows, np.zeros(damage.end - damage.start, np.uint32)
    for array in groups:
        array.flags.writeable = False
    return Notifications(damage.start, damage.end, version, *groups, damage=(damage,))


def payload_sizes(parts: Sequence[pa.RecordBatch], memory: SearchMemory) -> NDArray[np.uint32]:
    """The payload bytes of each event of a block. Also has `memory`, which matched the block, let go of it."""
    sizes = [memory.columns_of(part).payload_sizes() for part in parts]
    memory.let_go()
    return sizes[0] if len(sizes) == 1 else np.concatenate(sizes)
