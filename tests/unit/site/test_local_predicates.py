"""A site advertises the sum of its own subscriptions: additions soon and together, removals a little later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from culver.matching import EncodedPredicate, PredicateSummary, SitePredicate
from culver.registry import Block, Registration
from culver.site.wide_area.local_predicates import LocalPredicates
from support.gateway import run
from support.notifications import registration, removed
from support.subscriptions import block_spec
from support.until import until


class Advertisements:
    """Gives numbers to those that change something, from 100 on, as the core does."""

    def __init__(self) -> None:
        self.all: list[EncodedPredicate] = []

    def advertise(self, predicate: SitePredicate) -> int:
        assert isinstance(predicate, EncodedPredicate)
        if not self.all or self.all[-1] != predicate:
            self.all.append(predicate)
        return 100 + len(self.all)

    def vectors(self) -> list[int]:
        return [len(each.vectors) for each in self.all]


@asynccontextmanager
async def started(
    *registrations: Registration | Block,
) -> AsyncIterator[tuple[LocalPredicates, Advertisements]]:
    advertisements = Advertisements()
    local = LocalPredicates(PredicateSummary(), lambda number: None, advertisements.advertise)
    await local.start(lambda: registrations)
    try:
        yield local, advertisements
    finally:
        await local.close()


def own(number: int, text: str, name: str | None = None) -> Registration:
    made = registration(number, name or f"s{number}")
    return replace(made, filter=text, version=number)


def block(number: int, *symbols: str) -> Block:
    return block_spec("q", [[symbol, 1.0] for symbol in symbols]).block(number, 0, 0, number, 0)


def test_everything_in_effect_is_advertised_at_the_start() -> None:
    async def scenario() -> None:
        ended = removed(own(3, "a = 'gone'"), 5)
        of_site = replace(own(4, "not a filter"), id="site~lyon~0123456789abcdef", scheme="encoded")
        async with started(own(1, "a = 'x'"), own(2, "a = 'y'"), ended, of_site, block(5, "u")) as (
            local,
            seen,
        ):
            assert seen.vectors() == [3]
            assert local.version_of(own(2, "a = 'y'")) == 101

    run(scenario())


def test_additions_of_one_moment_share_an_advertisement() -> None:
    async def scenario() -> None:
        async with started() as (local, seen):
            for number in range(1, 6):
                local.register([own(number, f"a = '{number}'")])
            assert local.version_of(own(5, "")) is None
            await until(lambda: local.version_of(own(5, "")) is not None)
            assert seen.vectors() == [0, 5]
            # All were added by the first advertisement that has the last.
            assert local.version_of(own(1, "")) == local.version_of(own(5, "")) == 102

    run(scenario())


def test_removals_are_advertised_later_than_additions() -> None:
    async def scenario() -> None:
        first = own(1, "a = 'x'")
        async with started(first) as (local, seen):
            local.register([removed(first, 9)])
            local.register([own(2, "a = 'y'")])
            await until(lambda: seen.vectors() == [1, 2, 1])

    run(scenario())


def test_replaced_subscription_is_advertised_before_the_old_one_is_forgotten() -> None:
    async def scenario() -> None:
        async with started(own(1, "a = 'x'", "s")) as (local, seen):
            local.register([own(2, "b = 'x'", "s")])
            await until(lambda: len(seen.all) == 3)
            assert seen.vectors() == [1, 2, 1]
            assert seen.all[2].forms == ("equal:string:b",)

    run(scenario())


def test_block_is_advertised_until_its_last_member_has_left() -> None:
    async def scenario() -> None:
        rows = block(10, "x", "y", "z")
        async with started(rows) as (local, seen):
            assert seen.vectors() == [3]
            members = list(rows.registrations([10, 11]))
            local.register([replace(each, until=5, removed=True) for each in members])
            local.register([own(20, "c = 'new'", "q.2")])
            await until(lambda: seen.vectors()[-1:] == [1])
            assert seen.all[-1].forms == ("equal:string:c",)
            again = block(30, "x")
            local.register([again])
            await until(lambda: seen.vectors()[-1] == 2)
            local.register([replace(again, until=9)])
            await until(lambda: seen.vectors()[-1] == 1)

    run(scenario())
