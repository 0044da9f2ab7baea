"""What every site does, whoever speaks with it: one suite for the running site, for the remote site of a further
gateway process over a real socket, and for the fake site of the other tests."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from culver.assembly import open_site
from culver.config import (
    ChannelSettings,
    OverlaySettings,
    PipelineSettings,
    RegistrySettings,
    Settings,
)
from culver.control import Slices
from culver.delivery import Delivery, DeliveryGap, MergedEnd, MergedEvent, MergedItem, Selection, Share
from culver.errors import (
    Conflict,
    InvalidFilter,
    InvalidRequest,
    NotFound,
    StorageError,
    TooLarge,
    TooManySubscriptions,
)
from culver.log import FollowedLog
from culver.model.event import Event
from culver.model.language.parser import parse
from culver.plugins import open_reader
from culver.registry import Registration, SubscriptionSpec
from culver.roles import (
    MOST_SEQUENCE,
    ChannelLoss,
    ChannelSession,
    History,
    JointSession,
    NumberedPart,
    Observation,
    PublicationNumbers,
    Publications,
    Session,
    Sessions,
    Site,
    SiteChannels,
    Subscriptions,
    WideArea,
)
from culver.site import RemoteSite, channels_of
from culver.site.peer import Peer
from culver.site.remote_site import ServedSite
from support.channel_thread import channel_thread
from support.fake_site import FakeSite
from support.gateway import run
from support.subscriptions import block_spec
from support.until import settled, until

WAIT_SECONDS = 20.0
# A change of a kernel has it compiled at the first start.
START_SECONDS = 120.0


@asynccontextmanager
async def running_site(settings: Settings) -> AsyncIterator[Site]:
    async with open_site(settings) as site:
        await until(lambda: site.observation.ready, START_SECONDS)
        yield site


@asynccontextmanager
async def remote_site(settings: Settings) -> AsyncIterator[Site]:
    async with open_site(settings) as site:
        await until(lambda: site.observation.ready, START_SECONDS)
        served = ServedSite(
            site, site.live, is_gone=lambda: False, sent_elsewhere=lambda: 7, give_up_reserve=settled
        )
        here, there = Peer(served, lambda message: None), Peer(None, lambda message: None)
        ends = socket.socketpair()
        await here.connect(ends[0])
        await there.connect(ends[1])
        try:
            hub = site._parts.hub
            channels = channels_of(settings, hub, site._parts.identity)
            async with channels.running():
                # As it was when the gateway process began: nobody here announces what is matched.
                log = FollowedLog(open_reader(site._parts.log.address), 0)
                yield RemoteSite(settings, Share(), [0], there, hub, channels, log)
        finally:
            there.close()
            await asyncio.gather(here.lost.wait(), there.lost.wait())


@asynccontextmanager
async def fake_site(settings: Settings) -> AsyncIterator[Site]:
    yield FakeSite(settings)


Play = Callable[[Callable[[Site], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def channels_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with channel_thread(tmp_path_factory.mktemp("servers")) as directory:
        yield directory.url


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        pipeline=PipelineSettings(engine="inline", placement="mpartition", slices=2),
        registry=RegistrySettings(max_subscriptions=10),
    )


@pytest.fixture(params=[running_site, remote_site, fake_site])
def opened(request: pytest.FixtureRequest) -> "Open":
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def play(opened: "Open", settings: Settings) -> Play:
    """Runs a scenario with a new site, which holds ten subscriptions at most and two slices, and has no channels."""
    return _player(opened, settings)


@pytest.fixture
def play_with_channels(opened: "Open", settings: Settings, channels_url: str) -> Play:
    return _player(opened, replace(settings, channels=ChannelSettings(url=channels_url)))


@pytest.fixture
def play_in_overlay(opened: "Open", settings: Settings) -> Play:
    """Runs a scenario with a new site of an overlay, to which no other site belongs yet."""
    return _player(opened, replace(settings, overlay=OverlaySettings(name="paris", listen="127.0.0.1:0")))


Open = Callable[[Settings], AbstractAsyncContextManager[Site]]


def _player(opened: Open, settings: Settings) -> Play:
    async def main(scenario: Callable[[Site], Awaitable[None]]) -> None:
        async with opened(settings) as site:
            assert site.settings is settings
            await scenario(site)

    return lambda scenario: run(main(scenario))


def spec(text: str, name: str | None = None, *, durable: bool = True) -> SubscriptionSpec:
    return SubscriptionSpec(parse(text), name, durable)


def events(*values: int) -> list[Event]:
    return [Event({}, {"a": value}, b'{"a": %d}' % value) for value in values]


async def add(site: Site, text: str, name: str | None = None) -> Registration:
    (registration,) = await site.subscriptions.add([spec(text, name)])
    return registration


async def add_live(site: Site, text: str) -> Registration:
    live = spec(text, site.sessions.new_live_id(), durable=False)
    (registration,) = await site.subscriptions.add([live])
    return registration


async def receive(session: Session, count: int) -> list[Delivery | DeliveryGap]:
    """That many, in as many calls as it takes."""
    items: list[Delivery | DeliveryGap] = []
    while len(items) < count:
        more = await session.receive(count - len(items), WAIT_SECONDS)
        assert more, f"only {items} came"
        items += more
    return items


async def offsets(session: Session, count: int) -> list[int]:
    return [item.offset for item in await receive(session, count) if isinstance(item, Delivery)]


async def names(site: Site) -> list[str]:
    return [each.id for each in await site.subscriptions.page(None, 100)]


@pytest.mark.parametrize(
    "role",
    [
        Publications,
        Subscriptions,
        Sessions,
        Session,
        JointSession,
        History,
        Slices,
        SiteChannels,
        ChannelSession,
        WideArea,
        Observation,
    ],
)
def test_every_method_of_a_role_is_covered_here(role: type) -> None:
    tested = Path(__file__).read_text(encoding="utf-8")
    methods = [name for name in vars(role) if not name.startswith("_")]
    assert [name for name in methods if f".{name}" not in tested] == []


# --- publications -------------------------------------------------------------------------------------


def test_publications_get_offsets_in_their_order(play: Play) -> None:
    async def scenario(site: Site) -> None:
        answers = [site.publications.publish(events(1, 2)), site.publications.publish(events(3))]
        receipts = await asyncio.gather(*answers)
        assert [(each.first_offset, each.next_offset) for each in receipts] == [(0, 2), (2, 3)]

    play(scenario)


def numbers(first: int, count: int, publisher: str = "p") -> PublicationNumbers:
    return PublicationNumbers(publisher, range(first, first + count))


def places(parts: Sequence[NumberedPart]) -> list[tuple[int, bool]]:
    """The offset of each event, and whether it was there before."""
    return [
        (offset, is_repeat) for first, following, is_repeat in parts for offset in range(first, following)
    ]


def test_repeat_of_a_numbered_publication_gets_the_first_receipt(play: Play) -> None:
    async def scenario(site: Site) -> None:
        publish_once = site.publications.publish_once
        assert places(await publish_once(events(1, 2), numbers(7, 2))) == [(0, False), (1, False)]
        await site.publications.publish(events(3))
        assert places(await publish_once(events(1, 2), numbers(7, 2))) == [(0, True), (1, True)]
        assert places(await publish_once(events(1, 2), numbers(7, 2, "q"))) == [(3, False), (4, False)]
        receipt = await site.publications.publish(events(4))
        assert receipt.first_offset == 5

    play(scenario)


def test_of_a_repeat_in_other_batches_only_what_is_new_is_appended(play: Play) -> None:
    async def scenario(site: Site) -> None:
        publish_once = site.publications.publish_once
        await publish_once(events(2, 3), numbers(2, 2))
        await publish_once(events(6), numbers(6, 1))
        parts = await publish_once(events(0, 1, 2, 3, 4, 5, 6, 7), numbers(0, 8))
        assert places(parts) == [
            (3, False), (4, False), (0, True), (1, True), (5, False), (6, False), (2, True), (7, False)
        ]  # fmt: skip
        again = await publish_once(events(4, 6, 9), PublicationNumbers("p", [4, 6, 9]))
        assert places(again) == [(5, True), (2, True), (8, False)]

    play(scenario)


def test_numbered_publications_that_come_at_the_same_time_are_never_doubled(play: Play) -> None:
    async def scenario(site: Site) -> None:
        rng = random.Random(5)
        spans = [(first, first + rng.randint(1, 9)) for first in (rng.randrange(40) for _ in range(60))]
        answers = await asyncio.gather(
            *[
                site.publications.publish_once(events(*range(*span)), numbers(span[0], span[1] - span[0]))
                for span in spans
            ]
        )
        offsets: dict[int, int] = {}
        fresh = 0
        for (first, end), parts in zip(spans, answers, strict=True):
            for sequence, (offset, is_repeat) in zip(range(first, end), places(parts), strict=True):
                assert offsets.setdefault(sequence, offset) == offset
                fresh += not is_repeat
        assert fresh == len(offsets) == len(set(offsets.values()))
        end = (await site.publications.publish(events(1))).first_offset
        assert end == len(offsets)

    play(scenario)


def test_numbered_publication_whose_caller_has_gone_is_known_all_the_same(play: Play) -> None:
    async def scenario(site: Site) -> None:
        given_up = site.publications.publish_once(events(1), numbers(0, 1))
        await asyncio.sleep(0)
        given_up.cancel()
        parts = await site.publications.publish_once(events(1), numbers(0, 1))
        (stored,) = places(parts)
        receipt = await site.publications.publish(events(2))
        assert (stored[0], receipt.first_offset) == (0, 1)

    play(scenario)


def test_another_event_under_a_known_number_is_refused_and_nothing_stored(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.publications.publish_once(events(1, 2), numbers(0, 2))
        with pytest.raises(Conflict) as caught:
            await site.publications.publish_once(events(1, 3, 4), numbers(0, 3))
        assert caught.value.field == "sequence"
        assert (await site.publications.publish(events(5))).first_offset == 2

    play(scenario)


@pytest.mark.parametrize("sequences", [[-1], [MOST_SEQUENCE + 1], [3, 2], [2, 2]])
def test_impossible_numbers_are_refused(play: Play, sequences: list[int]) -> None:
    async def scenario(site: Site) -> None:
        with pytest.raises(InvalidRequest) as caught:
            await site.publications.publish_once(events(*sequences), PublicationNumbers("p", sequences))
        assert caught.value.field == "sequence"

    play(scenario)


def test_subscribers_get_the_payload_that_was_stored_under_a_number(play: Play) -> None:
    async def scenario(site: Site) -> None:
        registration = await add(site, "a >= 0", "s")
        for _ in range(2):
            await site.publications.publish_once(events(1, 2), numbers(0, 2))
        session = await site.sessions.open(registration)
        assert await receive(session, 2) == [Delivery("s", 0, b'{"a": 1}'), Delivery("s", 1, b'{"a": 2}')]
        await session.close()

    play(scenario)


# --- subscriptions ------------------------------------------------------------------------------------


def test_subscription_gets_every_matching_event_from_its_position_on(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.publications.publish(events(5))
        first, second = await site.subscriptions.add([spec("a > 1", "first"), spec("a > 2")])
        assert (first.id, first.filter, first.since, first.until, first.durable) == (
            "first",
            "a > 1",
            1,
            None,
            True,
        )
        assert second.id not in ("", "first")
        await site.publications.publish(events(1, 2, 3))
        session = await site.sessions.open(first)
        assert await receive(session, 2) == [
            Delivery("first", 2, b'{"a": 2}'),
            Delivery("first", 3, b'{"a": 3}'),
        ]
        await session.close()

    play(scenario)


def test_subscriptions_are_added_all_or_none(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await add(site, "a > 1", "taken")
        with pytest.raises(Conflict) as caught:
            await site.subscriptions.add([spec("a > 2", "new"), spec("a > 3", "taken")])
        assert caught.value.field == "id"
        with pytest.raises(TooManySubscriptions):
            await site.subscriptions.add([spec("TRUE") for _ in range(10)])
        with pytest.raises(TooManySubscriptions):
            await site.subscriptions.add_block(block_spec("q", [["x", 1.0]] * 10))
        assert await names(site) == ["taken"]

    play(scenario)


def test_replaced_subscription_goes_by_its_new_filter(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await add(site, "a > 1", "s")
        await site.publications.publish(events(2))
        replaced = await site.subscriptions.replace(spec("a < 1", "s"))
        assert (replaced.since, replaced.filter) == (1, "a < 1")
        assert await site.subscriptions.get("s") == replaced
        await site.publications.publish(events(2, 0))
        session = await site.sessions.open(replaced, 0)
        assert await offsets(session, 1) == [2]
        await session.close()
        with pytest.raises(NotFound):
            await site.subscriptions.replace(spec("TRUE", "nobody"))
        with pytest.raises(Conflict) as caught:
            await site.subscriptions.replace(spec("TRUE", "s", durable=False))
        assert caught.value.field == "durable"

    play(scenario)


def test_removed_subscription_is_gone(play: Play) -> None:
    async def scenario(site: Site) -> None:
        registration = await add(site, "a > 1", "s")
        session = await site.sessions.open(registration)
        ended = await site.subscriptions.remove("s")
        assert (ended.number, ended.until, ended.removed) == (registration.number, 0, True)
        with pytest.raises(NotFound):
            await session.receive(1, WAIT_SECONDS)
        await session.close()
        for refused in (site.subscriptions.get, site.subscriptions.remove):
            with pytest.raises(NotFound):
                await refused("s")
        assert await names(site) == []

    play(scenario)


def test_pages_are_ordered_and_continue_behind_an_id(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.subscriptions.add([spec("TRUE", name) for name in ("c", "a", "d", "b")])
        page = await site.subscriptions.page(None, 3)
        assert [each.id for each in page] == ["a", "b", "c"]
        assert [each.id for each in await site.subscriptions.page("c", 3)] == ["d"]
        assert await site.subscriptions.page("d", 3) == []

    play(scenario)


def test_rows_of_a_set_are_subscriptions_and_leave_together(play: Play) -> None:
    async def scenario(site: Site) -> None:
        block = await site.subscriptions.add_block(block_spec("q", [["x", 1.0], ["y", 2.0]]))
        assert (block.name, block.first, block.count, block.since, block.values) == ("q", 0, 2, 0, b"")
        more = await site.subscriptions.add_block(block_spec("q", [["z", 3.0]], first=2))
        assert (more.first, more.count) == (2, 1)
        await site.subscriptions.add_block(block_spec("p", [["z", 3.0]]))
        sets = await site.subscriptions.sets(None, 10)
        assert [(each.name, each.count, each.next) for each in sets] == [("p", 1, 1), ("q", 3, 3)]
        assert [each.name for each in await site.subscriptions.sets("p", 10)] == ["q"]
        assert [each.name for each in await site.subscriptions.sets(None, 1)] == ["p"]
        assert (await site.subscriptions.get("q.1")).filter == "symbol = 'y' AND close >= 2.0"
        assert await site.subscriptions.remove_set("q") == 3
        assert await names(site) == ["p.0"]
        with pytest.raises(NotFound):
            await site.subscriptions.remove_set("q")

    play(scenario)


def test_rows_are_added_all_or_none(play: Play) -> None:
    async def scenario(site: Site) -> None:
        with pytest.raises(InvalidFilter) as wrong:
            await site.subscriptions.add_block(block_spec("q", [["x", 1.0], ["y", float("nan")]]))
        assert (wrong.value.details["row"], wrong.value.details["parameter"]) == (1, 2)
        with pytest.raises(Conflict) as taken:
            await site.subscriptions.add_block(block_spec("q", [["x", 1.0]], first=5))
        assert taken.value.details["next"] == 0
        assert await names(site) == []

    play(scenario)


# --- sessions -----------------------------------------------------------------------------------------


def test_deliveries_come_again_until_they_are_acknowledged(play: Play) -> None:
    async def scenario(site: Site) -> None:
        registration = await add(site, "a > 0", "s")
        await site.publications.publish(events(1, 2, 3))
        session = await site.sessions.open(registration)
        assert session.registration == registration
        assert await offsets(session, 3) == [0, 1, 2]
        assert await session.receive(1, 0) == []
        assert await site.sessions.pending([registration]) == [3]
        await session.acknowledge(0)
        assert await site.sessions.pending([registration]) == [2]
        session.rewind(-1)
        assert await offsets(session, 2) == [1, 2], "never before what is acknowledged"
        with pytest.raises(InvalidRequest) as caught:
            await session.acknowledge(3)
        assert caught.value.field == "delivery_id"
        await session.close()
        again = await site.sessions.open(registration)
        assert await offsets(again, 2) == [1, 2]
        skipping = await site.sessions.open(registration, 1)
        assert await offsets(skipping, 1) == [2]
        assert await site.sessions.pending([registration]) == [2]
        await again.close()
        await skipping.close()

    play(scenario)


def test_what_waits_is_told_by_offset_and_stays(play: Play) -> None:
    async def scenario(site: Site) -> None:
        registration = await add(site, "a > 1", "s")
        await site.publications.publish(events(0, 2, 3, 1, 4))
        await until(lambda: site.sessions.waiting(registration, 0, 9).frontier == 5)
        everything = site.sessions.waiting(registration, 0, 9)
        assert (everything.offsets, everything.gaps, everything.end) == ([1, 2, 4], [], 5)
        assert everything.cursor == -1
        some = site.sessions.waiting(registration, 2, 1)
        assert (some.offsets, some.end, some.frontier) == ([2], 3, 5)
        session = await site.sessions.open(registration)
        await session.acknowledge(2)
        await session.close()
        rest = site.sessions.waiting(registration, 0, 9)
        assert (rest.offsets, rest.cursor) == ([4], 2)
        beyond = site.sessions.waiting(registration, 7, 9)
        assert (beyond.offsets, beyond.end) == ([], 7)
        await site.subscriptions.remove("s")
        with pytest.raises(NotFound):
            site.sessions.waiting(registration, 0, 9)

    play(scenario)


# --- history ------------------------------------------------------------------------------------------


def test_history_has_all_events_by_offset(play: Play) -> None:
    async def scenario(site: Site) -> None:
        assert await site.history.bounds() == (0, 0)
        await site.publications.publish(events(5, 6))
        await site.publications.publish(events(7, 8))
        assert await site.history.bounds() == (0, 4)
        page = await site.history.read(1, 9, 2)
        assert (page.offsets.tolist(), page.next, page.lost) == ([1, 2], 3, None)
        assert page.events.column("payload").to_pylist() == [b'{"a": 6}', b'{"a": 7}']
        rest = await site.history.read(3, 9, 2)
        assert (rest.offsets.tolist(), rest.next) == ([3], 4)
        nothing = await site.history.read(4, 9, 2)
        assert (nothing.offsets.tolist(), nothing.events.num_rows, nothing.next) == ([], 0, 4)

    play(scenario)


def test_history_is_filtered(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.publications.publish(events(*range(10)))
        page = await site.history.read(1, 9, 2, parse("a > 2 AND a <> 4"))
        assert (page.offsets.tolist(), page.next) == ([3, 5], 6)
        page = await site.history.read(6, 9, 9, parse("a > 2"))
        assert (page.offsets.tolist(), page.next) == ([6, 7, 8], 9)
        page = await site.history.read(0, 9, 9, parse("b > 2"))
        assert (page.offsets.tolist(), page.next) == ([], 9)

    play(scenario)


def test_history_picks_single_offsets(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.publications.publish(events(*range(5)))
        await site.publications.publish(events(*range(5, 10)))
        page = await site.history.pick([0, 3, 4, 9])
        assert (page.offsets.tolist(), page.next, page.lost) == ([0, 3, 4, 9], 10, None)
        assert page.events.column("payload").to_pylist()[1] == b'{"a": 3}'
        assert (await site.history.pick([])).offsets.tolist() == []
        with pytest.raises(StorageError, match="offset 10"):
            await site.history.pick([9, 10])

    play(scenario)


def test_history_is_found_by_time(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.publications.publish(events(1))
        assert await site.history.offset_at(0) == 0
        assert await site.history.offset_at(2**60) == 1

    play(scenario)


def test_session_waits_for_the_next_event(play: Play) -> None:
    async def scenario(site: Site) -> None:
        session = await site.sessions.open(await add(site, "a > 0"))
        assert await session.receive(1, 0.01) == []
        waiting = asyncio.create_task(session.receive(5, None))
        await site.publications.publish(events(0, 1))
        (item,) = await waiting
        assert isinstance(item, Delivery)
        assert item.offset == 1
        await session.close()

    play(scenario)


def test_live_subscription_ends_with_its_session(play: Play) -> None:
    async def scenario(site: Site) -> None:
        registration = await add_live(site, "a > 0")
        assert registration.id.startswith("live-")
        session = await site.sessions.open(registration)
        await site.publications.publish(events(1))
        assert await offsets(session, 1) == [0]
        await session.acknowledge(0)
        assert await site.sessions.pending([registration]) == [0]
        await session.close()
        with pytest.raises(NotFound):
            await site.subscriptions.get(registration.id)

    play(scenario)


def test_live_subscriber_that_comes_back_hears_of_its_gap(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.publications.publish(events(1, 2))
        registration = await add_live(site, "a > 0")
        session = await site.sessions.open(registration, 0)
        await site.publications.publish(events(3))
        gap, delivery = await receive(session, 2)
        assert isinstance(gap, DeliveryGap)
        assert (gap.start, gap.end, gap.reason) == (1, 2, "disconnected")
        assert isinstance(delivery, Delivery)
        assert delivery.offset == 2
        await session.close()

    play(scenario)


async def joined(session: JointSession, deliveries: int) -> list[MergedItem]:
    """Receive until so many deliveries, gaps and ends are there, as one item for each event."""
    items: list[MergedItem] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while sum(each.deliveries if isinstance(each, MergedEvent) else 1 for each in items) < deliveries:
            items += await session.receive(10, None)
    events = {each.offset: each for each in items if isinstance(each, MergedEvent)}
    for each in items:
        if isinstance(each, MergedEvent) and (first := events[each.offset]) is not each:
            first.to.extend(each.to)
            for group, members in each.groups.items():
                first.groups.setdefault(group, []).extend(members)
    for event in events.values():
        event.to.sort()
    others = [each for each in items if not isinstance(each, MergedEvent)]
    return [*others, *(events[offset] for offset in sorted(events))]


def test_joint_session_gets_an_event_with_all_that_it_is_for(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.subscriptions.add_block(block_spec("quotes", [(0,), (1,), (2,)], "a > ?"))
        durable, live = await add(site, "a > 1", "s"), await add_live(site, "a > 2")
        session = site.sessions.open_joint()
        session.add(durable)
        session.add(live)
        assert session.follow(1, Selection(set_name="quotes")) == 3
        await site.publications.publish(events(1, 3))
        assert await joined(session, 6) == [
            MergedEvent(0, b'{"a": 1}', [], {1: ["quotes.0"]}),
            MergedEvent(1, b'{"a": 3}', [live.id, "s"], {1: ["quotes.0", "quotes.1", "quotes.2"]}),
        ]
        await session.acknowledge("s", 1)
        await session.acknowledge(live.id, 1)
        await session.acknowledge_group(1, 0)
        members = [await site.subscriptions.get(f"quotes.{place}") for place in range(3)]
        assert await site.sessions.pending([durable, *members]) == [0, 1, 1, 1]
        with pytest.raises(InvalidRequest) as caught:
            await session.acknowledge_group(1, 2)
        assert caught.value.field == "offset"
        with pytest.raises(NotFound):
            await session.acknowledge_group(7, 0)
        await session.close()
        with pytest.raises(NotFound):
            await site.subscriptions.get(live.id)
        again = site.sessions.open_joint()
        again.follow(4, Selection(prefix="quotes."))
        assert await joined(again, 3) == [
            MergedEvent(1, b'{"a": 3}', [], {4: ["quotes.0", "quotes.1", "quotes.2"]})
        ]
        await again.close()

    play(scenario)


@pytest.mark.parametrize(
    "selection",
    [
        Selection(set_name="quotes"),
        Selection(prefix="quotes"),
        Selection(subscriptions=frozenset({"quotes.0", "quotes.1", "quotes.2", "unknown"})),
    ],
)
def test_group_is_acknowledged_without_a_session(play: Play, selection: Selection) -> None:
    async def scenario(site: Site) -> None:
        sessions = site.sessions
        await site.subscriptions.add_block(block_spec("quotes", [(0,), (1,), (2,)], "a > ?"))
        other = await add(site, "a > 0", "s")
        await site.publications.publish(events(3, 4, 5))
        session = sessions.open_joint()
        session.follow(1, selection)
        session.add(other)
        assert len(await joined(session, 12)) == 3
        assert await sessions.acknowledge_group(selection, 1) == 3
        assert await sessions.acknowledge_group(selection, 0) == 3  # changes nothing
        members = [await site.subscriptions.get(f"quotes.{place}") for place in range(3)]
        assert await sessions.pending([*members, other]) == [1, 1, 1, 3]
        with pytest.raises(InvalidRequest) as caught:
            await sessions.acknowledge_group(selection, 3)
        assert caught.value.field == "offset"
        for nobody in (Selection(set_name="none"), Selection(prefix="none"), Selection(set_name="s")):
            assert await sessions.acknowledge_group(nobody, 2) == 0
        assert await sessions.pending([*members, other]) == [1, 1, 1, 3]
        await session.close()
        again = sessions.open_joint()
        again.follow(2, selection)
        assert await joined(again, 3) == [
            MergedEvent(2, b'{"a": 5}', [], {2: ["quotes.0", "quotes.1", "quotes.2"]})
        ]
        await again.close()

    play(scenario)


def test_newer_members_of_a_group_keep_what_is_behind_an_acknowledgement(play: Play) -> None:
    async def scenario(site: Site) -> None:
        everybody = Selection(prefix="s")
        await add(site, "a > 0", "s1")
        await site.publications.publish(events(1, 2))
        newer = await add(site, "a > 0", "s2")
        assert newer.since == 2
        await site.publications.publish(events(3))
        session = site.sessions.open_joint()
        session.follow(1, everybody)
        assert [each.offset for each in await joined(session, 4) if isinstance(each, MergedEvent)] == [
            0,
            1,
            2,
        ]
        assert await site.sessions.acknowledge_group(everybody, 1) == 2
        assert await site.sessions.pending([await site.subscriptions.get("s1"), newer]) == [1, 1]
        await session.close()

    play(scenario)


def test_joint_session_hears_of_those_that_come_and_go(play: Play) -> None:
    async def scenario(site: Site) -> None:
        durable = await add(site, "a > 0", "s")
        session = site.sessions.open_joint()
        session.add(durable)
        listed = Selection(subscriptions=frozenset({"s", "t"}))
        assert session.follow(1, listed) == 1
        await add(site, "a > 0", "t")
        await site.publications.publish(events(1))
        assert await joined(session, 3) == [MergedEvent(0, b'{"a": 1}', ["s"], {1: ["s", "t"]})]
        await session.remove("s")
        await session.remove("s")
        await site.publications.publish(events(2))
        assert await joined(session, 2) == [MergedEvent(1, b'{"a": 2}', [], {1: ["s", "t"]})]
        await site.subscriptions.remove("s")
        await site.subscriptions.remove("t")
        assert await joined(session, 1) == [MergedEnd(group=1)]
        live = await add_live(site, "a > 0")
        session.add(live)
        await site.subscriptions.remove(live.id)
        assert await joined(session, 1) == [MergedEnd(subscription=live.id)]
        assert await session.receive(1, 0) == []
        await session.close()

    play(scenario)


def test_mailboxes_of_the_only_gateway_are_here(play: Play) -> None:
    async def scenario(site: Site) -> None:
        assert site.sessions.share == Share(0, 1)
        assert site.sessions.other_ports() == []
        ids = {site.sessions.new_live_id() for _ in range(20)}
        assert len(ids) == 20
        assert [site.sessions.elsewhere(each) for each in ("s", *ids)] == [None] * 21
        assert site.sessions.other_ports() == []

    play(scenario)


# --- slices and observation ---------------------------------------------------------------------------


def test_slices_are_added_and_removed(play: Play) -> None:
    async def scenario(site: Site) -> None:
        await site.observation.refresh()
        assert [each.slice for each in site.slices.view().slices] == [0, 1]
        assert len((await site.slices.add(1)).slices) == 3
        assert len((await site.slices.add(split=None)).slices) == 4
        for left in (3, 2, 1):
            assert len((await site.slices.remove(0)).slices) == left
        with pytest.raises(NotFound, match="there is only slice 0"):
            await site.slices.add(1)
        with pytest.raises(NotFound, match="there is only slice 0"):
            await site.slices.remove(1)
        with pytest.raises(Conflict, match="the last slice"):
            await site.slices.remove(0)
        await site.observation.refresh()
        assert len(site.slices.view().slices) == 1

    play(scenario)


def test_observation_tells_how_the_site_is_doing(play: Play) -> None:
    async def scenario(site: Site) -> None:
        async def refreshed() -> int:
            await site.observation.refresh()
            return int(site.observation.status()["subscriptions"])

        await add(site, "TRUE")
        await site.publications.publish(events(1, 2))
        await until(refreshed)  # housekeeping counts them once a second
        status, seen = site.observation.status(), site.observation.observe()
        assert site.observation.ready
        assert (status["ready"], status["state"], status["log_first_offset"]) == (True, "running", 0)
        assert (status["log_next_offset"], status["delivered_offset"]) == (2, 2)
        assert status["engine"] == seen.engine
        assert (seen.ready, seen.log_next_offset, seen.subscriptions) == (True, 2, 1)
        assert seen.pipeline.position == 2

    play(scenario)


# --- channels -----------------------------------------------------------------------------------------


async def messages(reader: ChannelSession, count: int) -> list[bytes | ChannelLoss]:
    """That many, in as many calls as it takes."""
    items: list[bytes | ChannelLoss] = []
    while len(items) < count:
        more = await reader.receive(count - len(items), WAIT_SECONDS)
        assert more, f"only {items} came"
        items += more
    return items


def test_readers_of_a_channel_get_its_messages_in_order(play_with_channels: Play) -> None:
    async def scenario(site: Site) -> None:
        assert await site.channels.publish("news", b"nobody hears") == 0
        one, two = await site.channels.subscribe("news"), await site.channels.subscribe("news")
        other = await site.channels.subscribe("other")
        sent = [b"%d" % number for number in range(50)]
        for message in sent:
            await site.channels.publish("news", message)
        assert await messages(one, 50) == sent
        assert await messages(two, 50) == sent
        await one.close()
        await site.channels.publish("news", b"\x00\xff")
        assert await messages(two, 1) == [b"\x00\xff"]
        assert await other.receive(1, 0) == []
        assert await other.receive(1, 0.01) == []
        await two.close()
        await other.close()

    play_with_channels(scenario)


def test_names_that_no_channel_can_have_are_refused(play_with_channels: Play) -> None:
    async def scenario(site: Site) -> None:
        for name, error in (("", InvalidRequest), ("__culver:ring", InvalidRequest), ("x" * 5_000, TooLarge)):
            with pytest.raises(error) as caught:
                await site.channels.publish(name, b"a")
            assert caught.value.field == "channel"
            with pytest.raises(error):
                await site.channels.subscribe(name)

    play_with_channels(scenario)


def test_deliveries_of_a_subscription_with_a_channel_are_published_and_acknowledged(
    play_with_channels: Play,
) -> None:
    async def scenario(site: Site) -> None:
        reader = await site.channels.subscribe("alerts.eu")
        asked = replace(spec("a > 1", "s"), channel="alerts.eu")
        (registration,) = await site.subscriptions.add([asked])
        assert registration.channel == "alerts.eu"
        await site.publications.publish(events(1, 2, 3))
        assert await messages(reader, 2) == [b'{"a": 2}', b'{"a": 3}']

        async def acknowledged() -> bool:
            return await site.sessions.pending([registration]) == [0]

        await until(acknowledged)
        await site.subscriptions.replace(replace(spec("a > 5", "s"), channel="alerts.eu"))
        await site.publications.publish(events(4, 6))
        assert await messages(reader, 1) == [b'{"a": 6}']
        # What is not acknowledged yet is published again, on the new channel.
        await until(acknowledged)
        moved = await site.channels.subscribe("moved")
        await site.subscriptions.replace(replace(spec("a > 5", "s"), channel="moved"))
        await site.publications.publish(events(7))
        assert await messages(moved, 1) == [b'{"a": 7}']
        await until(acknowledged)
        plain = await site.subscriptions.replace(spec("a > 5", "s"))
        await site.publications.publish(events(8))
        session = await site.sessions.open(plain)
        assert await offsets(session, 1) == [6], "a subscription without a channel has its mailbox for itself"
        await session.close()
        assert await moved.receive(1, 0) == await reader.receive(1, 0) == []
        await reader.close()
        await moved.close()

    play_with_channels(scenario)


def test_status_of_channels_says_what_they_do(play_with_channels: Play) -> None:
    async def scenario(site: Site) -> None:
        status = site.channels.status()
        assert (status.url, status.state) == (site.settings.channels.url, "running")
        assert (status.subscriptions, status.failing, status.published) == (0, 0, 0)

    play_with_channels(scenario)


def test_site_without_a_channel_service_refuses(play: Play) -> None:
    async def scenario(site: Site) -> None:
        for refused in (site.channels.publish("news", b"a"), site.channels.subscribe("news")):
            with pytest.raises(Conflict, match="--channels-url") as caught:
                await refused
            assert caught.value.field == "channel"
        assert site.channels.status().state == "off"

    play(scenario)


# --- overlay ------------------------------------------------------------------------------------------


def test_site_of_an_overlay_that_is_alone_waits_for_nobody(play_in_overlay: Play) -> None:
    async def scenario(site: Site) -> None:
        registration = await add(site, "a > 1")
        assert await site.overlay.wait([registration], WAIT_SECONDS)
        assert await site.overlay.positions([registration, registration]) == [{}, {}]
        await site.observation.refresh()
        status = site.overlay.status()
        assert status is not None
        assert (status.site.name, status.site.routing) == ("paris", "b-drp")
        assert status.site.key.startswith("paris~")
        assert (status.sites, status.links, status.troubles) == ([], [], [])
        with pytest.raises(NotFound, match="lyon") as caught:
            await site.overlay.forget("lyon")
        assert caught.value.field == "name"

    play_in_overlay(scenario)


def test_site_in_no_overlay_says_so(play: Play) -> None:
    async def scenario(site: Site) -> None:
        registration = await add(site, "a > 1")
        await site.observation.refresh()
        assert site.overlay.status() is None
        assert await site.overlay.wait([registration], 0)
        assert await site.overlay.positions([registration]) == [{}]
        with pytest.raises(NotFound, match="in no overlay"):
            await site.overlay.forget("lyon")

    play(scenario)


def test_mailboxes_of_other_sites_are_not_for_users(play: Play) -> None:
    async def scenario(site: Site) -> None:
        theirs = "site~lyon~0123456789abcdef"
        with pytest.raises(InvalidRequest, match="site~") as caught:
            await add(site, "a > 1", theirs)
        assert caught.value.field == "id"
        with pytest.raises(InvalidRequest):
            await site.subscriptions.add([replace(spec("a > 1", theirs), scheme="encoded")])
        with pytest.raises(InvalidRequest):
            await site.subscriptions.add_block(block_spec("site~q", [["x", 1.0]]))
        with pytest.raises(NotFound):
            await site.subscriptions.replace(spec("a > 1", theirs))
        for refused in (site.subscriptions.get, site.subscriptions.remove):
            with pytest.raises(NotFound):
                await refused(theirs)

    play(scenario)
