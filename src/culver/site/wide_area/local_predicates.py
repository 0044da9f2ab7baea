r"""What this site advertises: the sum of its own subscriptions.

    subscription added    --20 ms-->  \
                                       apply, encode (in a thread) --> advertise
    subscription removed  --0.5 s-->  /

Additions are advertised soon, and together with what comes in the same moment. Removals wait, because a subscription
is often replaced or comes back; until then the others send a little too much.
"""

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from culver.config import UNLIMITED_FILTERS
from culver.matching import SitePredicate
from culver.model import ENCODED
from culver.model.columns import read_columns
from culver.model.language import Predicate, parse, prepare
from culver.registry import Block, Registration, split_member
from culver.site.wide_area.routing.routing_strategy import PredicateSum

logger = logging.getLogger(__name__)

_WIDEN_SECONDS = 0.02
_NARROW_SECONDS = 0.5
_VERSIONS_KEPT = 1024
_READ_AT_ONCE = 5_000

_Addition = tuple[Registration | Block, Predicate | None]


@dataclass(slots=True)
class _OwnBlock:
    """A block of a set: the numbers and places of its rows, and how many of them are still in effect."""

    number: int
    count: int
    name: str
    first: int
    members: int


class LocalPredicates:
    """`summary` is empty at first. `advertise` is called on the event loop and returns the version of the
    advertisement. `known` has the predicates of registrations that are new, by number; others are parsed again."""

    def __init__(
        self,
        summary: PredicateSum,
        known: Callable[[int], Predicate | None],
        advertise: Callable[[SitePredicate], int],
    ) -> None:
        self._known = known
        self._advertise = advertise
        self._summary = summary
        self._thread = ThreadPoolExecutor(1, "culver-summary")
        self._numbers: dict[str, int] = {}  # of registrations that are in no block, by id
        self._blocks: dict[int, _OwnBlock] = {}
        self._block_numbers: list[int] = []  # ascending
        self._added: list[_Addition] = []
        self._removed: list[tuple[float, int]] = []  # when it may be forgotten, and its number
        self._registry_version = 0
        # (registry version, version of the advertisement that has everything up to there), ascending.
        self._covered: list[tuple[int, int]] = []
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, registrations: Callable[[], Iterable[Registration | Block]]) -> None:
        """Advertise everything that is in effect, then follow changes. `registrations` is called, and read, in a
        thread; changes that are told meanwhile may be among them."""
        loop = asyncio.get_running_loop()
        every = iter(await loop.run_in_executor(self._thread, registrations))
        while some := await loop.run_in_executor(self._thread, lambda: list(islice(every, _READ_AT_ONCE))):
            self.register([each for each in some if each.until is None])
            added, self._added = self._added, []
            await loop.run_in_executor(self._thread, self._add, added)
        await self._apply()
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    def register(self, registrations: Iterable[Registration | Block]) -> None:
        """Take note of registrations that began or ended; those of other sites are none of this site's own."""
        loop = asyncio.get_running_loop()
        widens = narrows = False
        for each in registrations:
            if isinstance(each, Registration) and each.scheme == ENCODED:
                continue
            self._registry_version = max(self._registry_version, each.version)
            ended = self._begin(each) if each.until is None else self._end(each)
            widens |= each.until is None
            narrows |= bool(ended)
            self._removed += [(loop.time() + _NARROW_SECONDS, number) for number in ended]
        if widens:
            loop.call_later(_WIDEN_SECONDS, self._work.set)
        if narrows:
            # A moment later than the times above.
            loop.call_later(_NARROW_SECONDS + 0.01, self._work.set)

    def version_of(self, registration: Registration) -> int | None:
        """The first version of the advertisement, as far back as is known, that has a registration; None while there
        is none."""
        place = bisect_left(self._covered, (registration.version, 0))
        return self._covered[place][1] if place < len(self._covered) else None

    def _begin(self, each: Registration | Block) -> list[int]:
        """Add a registration. Returns the numbers of what it takes the place of."""
        if isinstance(each, Block):
            if each.number not in self._blocks:
                members = each.count - len(each.holes)
                self._blocks[each.number] = _OwnBlock(each.number, each.count, each.name, each.first, members)
                self._block_numbers = sorted(self._blocks)
                self._added.append((each, None))
            return []
        before = self._numbers.get(each.id)
        if before == each.number:
            return []
        self._numbers[each.id] = each.number
        self._added.append((each, self._known(each.number)))
        return [before] if before is not None else self._leave_block(each.id)

    def _end(self, each: Registration | Block) -> list[int]:
        if isinstance(each, Block):
            self._drop_block(each.number)
            return [each.number]
        if self._numbers.get(each.id) == each.number:
            del self._numbers[each.id]
            return [each.number]
        place = bisect_right(self._block_numbers, each.number) - 1
        return self._lose_member(self._blocks[self._block_numbers[place]]) if place >= 0 else []

    def _leave_block(self, subscription: str) -> list[int]:
        """A member of a block has got a registration of its own."""
        member = split_member(subscription)
        for block in self._blocks.values() if member is not None else ():
            if member is not None and block.name == member[0] and 0 <= member[1] - block.first < block.count:
                return self._lose_member(block)
        return []

    def _lose_member(self, block: _OwnBlock) -> list[int]:
        """A block is advertised as a whole until its last member has left."""
        block.members -= 1
        if block.members:
            return []
        self._drop_block(block.number)
        return [block.number]

    def _drop_block(self, number: int) -> None:
        if self._blocks.pop(number, None) is not None:
            self._block_numbers.remove(number)

    async def _follow(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            took_seconds = await self._apply()
            # Encoding takes half of a thread at most.
            await asyncio.sleep(took_seconds)

    async def _apply(self) -> float:
        """Bring the advertisement up to date with the changes that are due; returns how long that took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        added, self._added = self._added, []
        due = [number for when, number in self._removed if when <= began]
        self._removed = [each for each in self._removed if each[0] > began]
        version = self._registry_version
        try:
            predicate = await loop.run_in_executor(self._thread, self._change, added, due)
        except Exception:
            # Better to be sent too little for a moment than to stop following.
            logger.exception("the advertisement cannot be made anew")
            return loop.time() - began
        advertised = self._advertise(predicate)
        if not self._covered or self._covered[-1][0] < version:
            self._covered.append((version, advertised))
            del self._covered[:-_VERSIONS_KEPT]
        return loop.time() - began

    def _change(self, added: list[_Addition], removed: list[int]) -> SitePredicate:
        self._add(added)
        for number in removed:
            self._summary.remove(number)
        return self._summary.encode()

    def _add(self, added: list[_Addition]) -> None:
        for each, predicate in added:
            if isinstance(each, Block):
                self._summary.add_rows(
                    each.number, prepare(each.filter, UNLIMITED_FILTERS), read_columns(each.values)
                )
            else:
                predicate = predicate or parse(each.filter, UNLIMITED_FILTERS)
                self._summary.add(each.number, predicate.clauses)
