"""Simulated matchers: each has a queue for every set that it works on, and serves the oldest event first.

    slice 0   set 0  . . .        takes up to `most` events, in order of arrival, from the queue whose first event is
              set 4  .            the oldest, and is busy with them for `fixed + each * events` seconds
              set 8
    slice 1   ...

The paper does not say in which order a matcher serves its queues; our matchers work off a log. A matcher that
served its queues in turn would, when overloaded, spend most of its time on the few events of its largest sets.

A waiting event occupies a slot. The slots of a queue form a linked list, and so do the free slots.
"""

from typing import NamedTuple

import numpy as np

from culver.jit import Integers, Reals, compiled


class EventSlots(NamedTuple):
    arrived: Reals  # when
    row: Integers  # which event of the pool
    following: Integers  # the next slot of the same list, -1: none
    free: Integers  # (1,): the first that is free


class MatcherQueues(NamedTuple):
    head: Integers
    tail: Integers
    length: Integers
    fixed: Reals
    each: Reals


class MatcherServers(NamedTuple):
    """The state of each slice. The queues of slice s are own[start[s]] to own[start[s + 1]]."""

    start: Integers
    own: Integers
    waiting: Integers  # events in all of its queues
    free_at: Reals  # when it has done what it has begun
    current: Integers  # the queue that it was last busy with
    stopped: Integers  # 1: it does nothing


class MatcherTally(NamedTuple):
    """Counts by queue, of work begun since the tally was cleared."""

    arrived: Integers
    served: Integers
    busy: Reals  # seconds
    response: Reals  # seconds, the sum over those served


@compiled
def _serve(
    slots: EventSlots,
    queues: MatcherQueues,
    servers: MatcherServers,
    tally: MatcherTally,
    server: int,
    until: float,
    most: int,
) -> None:
    """Begin all work that can begin before `until`."""
    while servers.waiting[server] > 0 and servers.free_at[server] < until and servers.stopped[server] == 0:
        queue, oldest = -1, np.inf
        for place in range(servers.start[server], servers.start[server + 1]):
            each = servers.own[place]
            if queues.length[each] > 0 and slots.arrived[queues.head[each]] < oldest:
                queue, oldest = each, slots.arrived[queues.head[each]]
        events = min(most, queues.length[queue])
        spent = queues.fixed[queue] + queues.each[queue] * events
        done = servers.free_at[server] + spent
        for _ in range(events):
            slot = queues.head[queue]
            tally.response[queue] += done - slots.arrived[slot]
            queues.head[queue] = slots.following[slot]
            slots.following[slot] = slots.free[0]
            slots.free[0] = slot
        queues.length[queue] -= events
        servers.waiting[server] -= events
        servers.free_at[server] = done
        servers.current[server] = queue
        tally.served[queue] += events
        tally.busy[queue] += spent


@compiled
def work(
    slots: EventSlots,
    queues: MatcherQueues,
    servers: MatcherServers,
    tally: MatcherTally,
    times: Reals,
    arrived: Reals,
    rows: Integers,
    to_queue: Integers,
    to_server: Integers,
    until: float,
    most: int,
) -> None:
    """Queue events at `times` (ascending) and let slices work until `until`. `arrived` says when each event
    reached the service. There must be enough free slots."""
    for event in range(len(times)):
        queue, server = to_queue[event], to_server[event]
        if queue < 0:
            continue
        _serve(slots, queues, servers, tally, server, times[event], most)
        if servers.waiting[server] == 0:
            servers.free_at[server] = max(servers.free_at[server], times[event])
        slot = slots.free[0]
        slots.free[0] = slots.following[slot]
        slots.arrived[slot], slots.row[slot], slots.following[slot] = arrived[event], rows[event], -1
        if queues.length[queue] == 0:
            queues.head[queue] = slot
        else:
            slots.following[queues.tail[queue]] = slot
        queues.tail[queue] = slot
        queues.length[queue] += 1
        servers.waiting[server] += 1
        tally.arrived[queue] += 1
    for server in range(len(servers.waiting)):
        _serve(slots, queues, servers, tally, server, until, most)


NO_SLOTS = EventSlots(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), np.array([-1]))


def more_slots(slots: EventSlots, count: int) -> EventSlots:
    """A copy with `count` more free slots."""
    base = len(slots.row)
    following = np.concatenate([slots.following, np.arange(base + 1, base + count + 1)])
    following[-1] = slots.free[0]
    return EventSlots(
        np.concatenate([slots.arrived, np.zeros(count)]),
        np.concatenate([slots.row, np.zeros(count, np.int64)]),
        following,
        np.array([base]),
    )


@compiled
def waiting_slots(slots: EventSlots, queues: MatcherQueues) -> Integers:
    """The slots of all queues, queue by queue."""
    result = np.empty(queues.length.sum(), np.int64)
    place = 0
    for queue in range(len(queues.length)):
        slot = queues.head[queue]
        for _ in range(queues.length[queue]):
            result[place] = slot
            slot = slots.following[slot]
            place += 1
    return result


def empty_queues(fixed: Reals, each: Reals) -> MatcherQueues:
    count = len(each)
    return MatcherQueues(np.full(count, -1), np.full(count, -1), np.zeros(count, np.int64), fixed, each)


def idle_servers(slice_of_queue: Integers, slices: int, now: float) -> MatcherServers:
    own = np.argsort(slice_of_queue, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(slice_of_queue, minlength=slices))])
    current = own[np.minimum(start[:-1], len(own) - 1)]
    waiting, stopped = np.zeros((2, slices), np.int64)
    return MatcherServers(start, own, waiting, np.full(slices, now), current, stopped)


def no_tally(queues: int) -> MatcherTally:
    arrived, served = np.zeros((2, queues), np.int64)
    busy, response = np.zeros((2, queues))
    return MatcherTally(arrived, served, busy, response)
