"""Real sites that feed each other over loopback: what is published at one reaches subscribers at the others, once."""

import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from culver.assembly import open_site
from culver.config import DeliverySettings, EventSettings, OverlaySettings, Settings
from culver.errors import Conflict, InvalidConfiguration, NotFound
from culver.model.columns import encode
from culver.model.formats import parse_event
from culver.model.language import parse
from culver.overlay import Link
from culver.plugins import ROUTINGS
from culver.registry import Registration, SubscriptionSpec
from culver.site import RunningSite
from support.gateway import run
from support.logs import append_damaged
from support.overlay_sites import (
    WAIT_SECONDS,
    Overlay,
    nothing_more,
    publish,
    reached,
    receive,
    seen,
    status_of,
    subscribe,
)
from support.subscriptions import block_spec
from support.until import settled, until


@pytest.fixture(params=sorted(ROUTINGS))
def overlay(tmp_path: Path, request: pytest.FixtureRequest) -> Overlay:
    return Overlay(tmp_path, routing=request.param)


@pytest.fixture
def drp_overlay(tmp_path: Path) -> Overlay:
    """For what clusters do not find out."""
    return Overlay(tmp_path)


def encoded(*numbers: int) -> list[pa.RecordBatch]:
    return encode([parse_event(b'{"a": %d}' % number) for number in numbers], 0)


async def deliver_two(origin: RunningSite, site: RunningSite) -> None:
    """Subscribe at a site that dials an origin, and see the origin's first two events arrive."""
    await reached(site, origin.settings.overlay.name)
    session = await site.sessions.open(await subscribe(site, "a > 0"))
    await publish(origin, 1, 2)
    assert await receive(session, 2) == [1, 2]
    await session.close()


def test_events_reach_durable_and_live_subscribers_of_another_site(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris") as lyon:
            await reached(paris, "lyon")
            await reached(lyon, "paris")
            durable = await subscribe(lyon, "a >= 10")
            assert await lyon.overlay.positions([durable]) == [{"paris": 0}]
            (live,) = await lyon.subscriptions.add(
                [SubscriptionSpec(parse("a = 12"), lyon.sessions.new_live_id(), durable=False)]
            )
            assert await lyon.overlay.wait([live], WAIT_SECONDS)
            sessions = [await lyon.sessions.open(each) for each in (durable, live)]
            await publish(paris, 1, 10, 11, 12)
            assert await receive(sessions[0], 3) == [10, 11, 12]
            assert await receive(sessions[1], 1) == [12]
            # A site's own events come without a detour, and go nowhere.
            await publish(lyon, 99)
            assert await receive(sessions[0], 1) == [99]
            await nothing_more(sessions[0], paris, lyon)
            assert seen(lyon, "paris").events_received == 3
            assert seen(lyon, "paris").received == 4
            assert status_of(lyon).totals.packets_sent == 0
            assert await paris.subscriptions.page(None, 10) == []
            await paris.keep_house()
            assert paris.observation.status()["subscriptions"] == 0
            assert paris.observation.observe().gateways[0].subscriptions == 0
            for session in sessions:
                await session.close()

    run(scenario())


def test_false_positives_are_received_counted_and_not_delivered(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris") as lyon:
            await reached(lyon, "paris")
            # The encoding knows ranges by cells only, and tells 1000 from 1001 no better than any two in one cell.
            session = await lyon.sessions.open(await subscribe(lyon, "a > 1000"))
            end = await publish(paris, *range(990, 1010))
            assert await receive(session, 9) == list(range(1001, 1010))
            await until(lambda: seen(lyon, "paris").received == end)
            received = seen(lyon, "paris").events_received
            await until(lambda: seen(lyon, "paris").false_positives == received - 9)
            await session.close()

    run(scenario())


def test_events_cross_a_site_in_between_and_leave_nothing_there(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with (
            overlay.site("paris") as paris,
            overlay.site("lyon", "paris") as lyon,
            overlay.site("bonn", "lyon") as bonn,
        ):
            await reached(paris, "lyon", "bonn")
            await reached(bonn, "lyon", "paris")
            session = await bonn.sessions.open(await subscribe(bonn, "a > 0"))
            await publish(paris, *range(1, 51))
            assert await receive(session, 50) == list(range(1, 51))
            assert (seen(paris, "bonn").path, seen(paris, "bonn").distance) == (["lyon", "bonn"], 2)
            assert lyon.observation.status()["log_next_offset"] == 0
            # What bonn has from paris goes no further, although lyon wants it too.
            other = await lyon.sessions.open(await subscribe(lyon, "a > 0"))
            await publish(paris, 77)
            await publish(bonn, 78)
            assert sorted(await receive(other, 2)) == [77, 78]
            assert await receive(session, 2) in ([77, 78], [78, 77])
            await nothing_more(session, paris, lyon, bonn)
            await nothing_more(other, paris, lyon, bonn)
            await session.close()
            await other.close()

    run(scenario())


def test_site_that_was_away_gets_what_it_missed_once(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris:
            async with overlay.site("lyon", "paris") as lyon:
                await deliver_two(paris, lyon)
            await publish(paris, *range(3, 300))
            await until(lambda: not seen(paris, "lyon").reachable)
            await until(lambda: seen(paris, "lyon").pending == 297)
            async with overlay.site("lyon", "paris") as lyon:
                session = await lyon.sessions.open(await lyon.subscriptions.get("s"))
                assert await receive(session, 297) == list(range(3, 300))
                await publish(paris, 300)
                assert await receive(session, 1) == [300]
                await nothing_more(session, paris)
                assert (status_of(lyon).gaps, status_of(paris).gaps) == ([], [])
                await session.close()

    run(scenario())


def test_source_that_was_away_goes_on_where_it_was(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("lyon", "paris") as lyon:
            registration = await subscribe(lyon, "a > 0")
            session = await lyon.sessions.open(registration)
            async with overlay.site("paris") as paris:
                await reached(lyon, "paris")
                assert await lyon.overlay.wait([registration], WAIT_SECONDS)
                await publish(paris, 1, 2)
                assert await receive(session, 2) == [1, 2]
            async with overlay.site("paris") as paris:
                # The predicate of lyon is in effect, whether there is a link or not.
                await publish(paris, 3, 4)
                assert await receive(session, 2) == [3, 4]
                await nothing_more(session, paris)
                assert seen(lyon, "paris").events_received == 4
            await session.close()

    run(scenario())


def test_nothing_crosses_after_the_last_subscription_is_removed(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris") as lyon:
            await reached(lyon, "paris")
            block = await lyon.subscriptions.add_block(block_spec("q", [["x", 1.0], ["y", 2.0]]))
            session = await lyon.sessions.open(await subscribe(lyon, "a > 0"))
            await publish(paris, 1)
            assert await receive(session, 1) == [1]
            await session.close()
            assert block.count == 2
            await lyon.subscriptions.remove("s")
            await lyon.subscriptions.remove("q.0")
            await lyon.subscriptions.remove("q.1")

            def is_silent() -> bool:
                own, theirs = status_of(lyon).site.advertisement, seen(paris, "lyon").advertisement
                applied = seen(lyon, "paris").applied_from
                return own.vectors == 0 and theirs is not None and theirs.vectors == 0 and applied is not None

            await until(is_silent, 2.0)
            await publish(paris, 2, 3)
            await until(lambda: paris.observation.status()["delivered_offset"] == 3)
            await settled()
            assert status_of(paris).totals.packets_sent == 1
            assert seen(paris, "lyon").pending == 0

    run(scenario())


def test_replaced_subscription_is_in_effect_at_other_sites(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris") as lyon:
            await reached(lyon, "paris")
            await subscribe(lyon, "kind = 'old'")
            replaced = await lyon.subscriptions.replace(SubscriptionSpec(parse("a > 0"), "s"))
            assert await lyon.overlay.wait([replaced], WAIT_SECONDS)
            session = await lyon.sessions.open(replaced)
            await publish(paris, 5)
            assert await receive(session, 1) == [5]
            await session.close()

    run(scenario())


def test_waiting_ends_when_the_time_is_up(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris:
            async with overlay.site("lyon", "paris") as lyon:
                await reached(lyon, "paris")
            await until(lambda: not seen(paris, "lyon").reachable)
            (registration,) = await paris.subscriptions.add([SubscriptionSpec(parse("a > 0"), "s")])
            assert await paris.overlay.wait([registration], WAIT_SECONDS), "nobody can be reached"
            assert await paris.overlay.positions([registration]) == [{"lyon": None}]

    run(scenario())


def test_new_data_directory_under_an_old_name_is_an_announced_gap(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris:
            async with overlay.site("lyon", "paris") as lyon:
                await deliver_two(paris, lyon)
                await until(lambda: seen(paris, "lyon").acknowledged == 2)
            await publish(paris, 3, 4, 5)
            shutil.rmtree(overlay.directory / "lyon")
            async with overlay.site("lyon", "paris") as lyon:
                await reached(lyon, "paris")
                session = await lyon.sessions.open(await subscribe(lyon, "a > 0"))
                await until(lambda: status_of(lyon).gaps, WAIT_SECONDS)
                (gap,) = status_of(lyon).gaps
                assert (gap.site, gap.start, gap.end) == ("paris", 2, 5)
                assert "data directory" in gap.reason
                await publish(paris, 6)
                assert await receive(session, 1) == [6]
                assert [each.name for each in status_of(paris).sites] == ["lyon"]
                await session.close()
            async with overlay.site("lyon", "paris") as lyon:
                assert [(each.start, each.end) for each in status_of(lyon).gaps] == [(2, 5)]

    run(scenario())


def test_batch_that_is_damaged_before_it_is_matched_is_an_announced_gap_at_the_other_sites(
    overlay: Overlay,
) -> None:
    async def scenario() -> None:
        async with overlay.site("lyon", "paris") as lyon:
            async with overlay.site("paris") as paris:
                await deliver_two(paris, lyon)
                await until(lambda: seen(paris, "lyon").acknowledged == 2)
            batches = [encoded(*numbers)[0] for numbers in ((3, -1), (4, 5, -1), (6,))]
            lost = append_damaged(overlay.directory / "paris" / "log", batches, damaged=1)
            for again in (False, True):
                async with overlay.site("paris") as paris:
                    await reached(lyon, "paris")
                    session = await lyon.sessions.open(await lyon.subscriptions.get("s"))
                    if not again:
                        assert await receive(session, 2) == [3, 6]
                    [damage] = paris.observation.status()["log_damage"]
                    assert (damage["start"], damage["end"]) == (4, 7) == (lost.start, lost.end)
                    await until(lambda: seen(paris, "lyon").acknowledged == 8)
                    (gap,) = status_of(lyon).gaps
                    assert (gap.site, gap.start, gap.end) == ("paris", 4, 7)
                    await nothing_more(session, paris, lyon)
                    await session.close()

    run(scenario())


def test_site_that_is_gone_is_forgotten_and_hears_of_the_gap_if_it_comes_back(overlay: Overlay) -> None:
    async def scenario() -> None:
        async with overlay.site("paris") as paris:
            async with overlay.site("lyon", "paris") as lyon:
                await deliver_two(paris, lyon)
                with pytest.raises(Conflict, match="lyon can be reached"):
                    await paris.overlay.forget("lyon")
            await until(lambda: not seen(paris, "lyon").reachable, WAIT_SECONDS)
            await publish(paris, 3, 4, 5)
            await until(lambda: seen(paris, "lyon").pending == 3, WAIT_SECONDS)
            forgotten = await paris.overlay.forget("lyon")
            assert (forgotten.name, len(forgotten.keys), forgotten.events) == ("lyon", 1, 3)
            assert (status_of(paris).sites, paris.overlay.mailboxes) == ([], 0)
            with pytest.raises(NotFound, match="lyon"):
                await paris.overlay.forget("lyon")
            async with overlay.site("lyon", "paris") as lyon:
                await until(lambda: status_of(lyon).gaps, WAIT_SECONDS)
                (gap,) = status_of(lyon).gaps
                assert (gap.site, gap.start, gap.end) == ("paris", 2, 5)
                assert gap.reason == "this site was forgotten there"
                (registration,) = await lyon.subscriptions.page(None, 10)
                assert isinstance(registration, Registration)
                assert await lyon.overlay.wait([registration], WAIT_SECONDS)
                await publish(paris, 6)
                session = await lyon.sessions.open(registration)
                assert await receive(session, 1) == [6]
                await session.close()

    run(scenario())


def put_back(overlay: Overlay, name: str) -> None:
    """Replace a site's data directory by the copy that was made of it."""
    shutil.rmtree(overlay.directory / name)
    (overlay.directory / "copy").rename(overlay.directory / name)


def test_origin_on_an_older_copy_of_its_data_takes_a_new_key_and_the_gap_is_announced(
    drp_overlay: Overlay, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with drp_overlay.site("lyon") as lyon:
            async with drp_overlay.site("paris", "lyon") as paris:
                await reached(lyon, "paris")
                registration = await subscribe(lyon, "a > 0")
                session = await lyon.sessions.open(registration)
                await publish(paris, 1, 2)
                assert await receive(session, 2) == [1, 2]
                old_key = status_of(paris).site.key
            shutil.copytree(drp_overlay.directory / "paris", drp_overlay.directory / "copy")
            async with drp_overlay.site("paris", "lyon") as paris:
                await publish(paris, 3, 4, 5)
                assert await receive(session, 3) == [3, 4, 5]
            put_back(drp_overlay, "paris")
            async with drp_overlay.site("paris", "lyon") as paris:
                # These have the offsets of 3 and 4, which lyon has: it may not miss them in silence.
                await publish(paris, 13, 14)
                await until(lambda: status_of(lyon).gaps, WAIT_SECONDS)
                (gap,) = status_of(lyon).gaps
                assert (gap.key, gap.start) == (old_key, 2)
                assert "lost its data directory" in gap.reason
                new_key = status_of(paris).site.key
                assert new_key != old_key
                (trouble,) = status_of(paris).troubles
                assert "older copy of its data directory: lyon has its log up to 5" in trouble
                await until(lambda: seen(lyon, "paris").key == new_key, WAIT_SECONDS)
                assert await lyon.overlay.wait([registration], WAIT_SECONDS)
                await publish(paris, 15)
                assert await receive(session, 1) == [15]
            async with drp_overlay.site("paris", "lyon") as paris:
                assert (status_of(paris).site.key, status_of(paris).troubles) == (new_key, [])
                await publish(paris, 16)
                assert await receive(session, 1) == [16]
                assert len(status_of(lyon).gaps) == 1
            await session.close()

    run(scenario())
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 1
    assert "older copy of its data directory" in errors[0]


def test_site_that_takes_a_new_key_keeps_what_it_has_and_announces_what_it_lost(drp_overlay: Overlay) -> None:
    async def scenario() -> None:
        async with drp_overlay.site("lyon") as lyon:
            async with drp_overlay.site("paris", "lyon") as paris:
                await deliver_two(lyon, paris)
                await subscribe(lyon, "a > 0")
                await publish(paris, 11)
                await until(lambda: seen(lyon, "paris").received == 3, WAIT_SECONDS)
            shutil.copytree(drp_overlay.directory / "paris", drp_overlay.directory / "copy")
            async with drp_overlay.site("paris", "lyon") as paris:
                await publish(lyon, 3)
                await until(lambda: seen(paris, "lyon").received == 4, WAIT_SECONDS)
                await publish(paris, 12)
                await until(lambda: seen(lyon, "paris").received == 5, WAIT_SECONDS)
            put_back(drp_overlay, "paris")
            async with drp_overlay.site("paris", "lyon") as paris:
                await until(lambda: status_of(paris).gaps, WAIT_SECONDS)
                (gap,) = status_of(paris).gaps
                # It has the first two events of lyon's log. Its old mailbox there was past the third one already.
                assert (gap.site, gap.start) == ("lyon", 2)
                assert len(status_of(paris).troubles) == 1
                session = await paris.sessions.open(await paris.subscriptions.get("s"))
                await until(lambda: seen(paris, "lyon").applied_from is not None, WAIT_SECONDS)
                await publish(lyon, 4)
                assert await receive(session, 2) == [11, 4]
                await session.close()

    run(scenario())


def test_neighbour_with_the_same_name_is_refused(overlay: Overlay, tmp_path: Path) -> None:
    async def scenario() -> None:
        other = Overlay(tmp_path / "elsewhere")
        other.directory.mkdir()
        async with overlay.site("paris") as paris:
            address = overlay.address("paris")
            named = OverlaySettings(name="paris", peers=address)
            async with other.site("paris", overlay=named) as second:
                taken = "the name paris is taken by this site"
                await until(lambda: taken in str(status_of(second).peers[0].failure), WAIT_SECONDS)
                await until(lambda: status_of(paris).refusals, WAIT_SECONDS)
                assert [each.reason for each in status_of(paris).refusals] == [taken]
                assert (status_of(paris).links, status_of(second).links) == ([], [])

    run(scenario())


def test_event_beyond_the_limits_of_a_site_is_skipped_there(overlay: Overlay) -> None:
    async def scenario() -> None:
        events = EventSettings(max_attributes=2)
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris", events=events) as lyon:
            await reached(lyon, "paris")
            session = await lyon.sessions.open(await subscribe(lyon, "a > 0"))
            large = parse_event(b'{"a": 1, "b": 2, "c": 3}')
            await paris.publications.publish([large])
            await publish(paris, 2)
            await paris.publications.publish([large])
            assert await receive(session, 1) == [2]
            await until(lambda: seen(paris, "lyon").acknowledged == 3)
            assert (seen(lyon, "paris").skipped, seen(lyon, "paris").events_received) == (2, 1)
            await session.close()

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (OverlaySettings(listen="127.0.0.1:7401"), "overlay.name"),
        (OverlaySettings(peers="127.0.0.1:7401"), "overlay.name"),
        (OverlaySettings(name="paris"), "overlay.listen"),
        (OverlaySettings(name="../paris", listen="127.0.0.1:0"), "overlay.name"),
        (OverlaySettings(name="paris", listen="nowhere"), "overlay.listen"),
        (OverlaySettings(name="paris", peers="lyon"), "overlay.peers"),
        (OverlaySettings(name="paris", peers="lyon:1?cost=0"), "overlay.peers"),
        (OverlaySettings(name="paris", peers="lyon:1", tls_ca="ca.pem"), "overlay.tls_ca"),
        (
            OverlaySettings(name="paris", peers="lyon:1", false_positive_rate=1.0),
            "overlay.false_positive_rate",
        ),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_made(
    tmp_path: Path, settings: OverlaySettings, field: str
) -> None:
    async def scenario() -> None:
        site = Settings(data_dir=tmp_path / "data", overlay=settings)
        with pytest.raises(InvalidConfiguration) as caught:
            async with open_site(site):
                pass
        assert caught.value.field == field
        assert not site.data_dir.exists()

    run(scenario())


def test_lost_packets_are_sent_again(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    send, packets = Link.send, count()

    def lossy(link: Link, body: bytes, *, urgent: bool) -> bool:
        """Loses every third packet, without a word."""
        return True if not urgent and next(packets) % 3 == 0 else send(link, body, urgent=urgent)

    monkeypatch.setattr(Link, "send", lossy)

    async def scenario() -> None:
        async with overlay.site("paris") as paris, overlay.site("lyon", "paris") as lyon:
            await reached(lyon, "paris")
            session = await lyon.sessions.open(await subscribe(lyon, "a > 0"))
            for first in range(1, 61, 5):
                await publish(paris, *range(first, first + 5))
                await settled()
            assert await receive(session, 60) == list(range(1, 61))
            await nothing_more(session, paris)
            assert seen(lyon, "paris").events_received == 60
            assert seen(paris, "lyon").resends > 0
            await session.close()

    run(scenario())


def test_mailbox_that_overflows_while_a_site_is_away_is_an_announced_gap(overlay: Overlay) -> None:
    async def scenario() -> None:
        delivery = DeliverySettings(mailbox_count=10)
        async with overlay.site("paris", delivery=delivery) as paris:
            async with overlay.site("lyon", "paris") as lyon:
                await reached(lyon, "paris")
                session = await lyon.sessions.open(await subscribe(lyon, "a > 0"))
                await publish(paris, 1)
                assert await receive(session, 1) == [1]
                await session.close()
            await until(lambda: not seen(paris, "lyon").reachable)
            await publish(paris, *range(2, 42))
            await paris.keep_house()
            await until(lambda: seen(paris, "lyon").pending == 10)
            async with overlay.site("lyon", "paris") as lyon:
                session = await lyon.sessions.open(await lyon.subscriptions.get("s"))
                assert await receive(session, 10) == list(range(32, 42))
                (gap,) = status_of(lyon).gaps
                assert (gap.site, gap.start, gap.end, gap.reason) == (
                    "paris",
                    1,
                    31,
                    "the site's mailbox there was full",
                )
                await nothing_more(session, paris)
                await session.close()

    run(scenario())


def test_sites_know_each_other_by_gossip_and_find_a_way_when_their_only_neighbour_dies(
    overlay: Overlay,
) -> None:
    async def knows(site: RunningSite, name: str, status: str) -> None:
        await until(lambda: seen(site, name).member == status, WAIT_SECONDS)

    async def scenario() -> None:
        async with overlay.site("lyon", "paris") as lyon, overlay.site("oslo", "paris") as oslo:
            async with overlay.site("paris"):
                await reached(lyon, "paris", "oslo")
                for site, name in ((lyon, "oslo"), (oslo, "lyon"), (lyon, "paris")):
                    await knows(site, name, "alive")
                    await until(lambda: seen(site, name).addresses == [overlay.address(name)], WAIT_SECONDS)  # noqa: B023
                session = await oslo.sessions.open(await subscribe(oslo, "a > 0"))
            await publish(lyon, 1)
            assert await receive(session, 1) == [1]
            assert seen(oslo, "lyon").path == ["lyon"]
            await knows(oslo, "paris", "left")
            async with overlay.site("paris"):
                await reached(oslo, "paris")
                await knows(oslo, "paris", "alive")
                # Ways of their own choice are cheaper.
                await until(lambda: seen(oslo, "lyon").path == ["paris", "lyon"], WAIT_SECONDS)
                await publish(lyon, 2)
                assert await receive(session, 1) == [2]

    run(scenario())


def test_a_site_that_must_not_dial_others_is_dialled_by_them(overlay: Overlay) -> None:
    async def scenario() -> None:
        lonely = replace(overlay.settings("oslo", "paris"), rescue=False)
        async with overlay.site("lyon", "paris") as lyon, overlay.site("oslo", overlay=lonely) as oslo:
            async with overlay.site("paris"):
                await reached(oslo, "lyon")
                await until(
                    lambda: seen(oslo, "lyon").addresses and seen(lyon, "oslo").addresses, WAIT_SECONDS
                )
            assert [each.address for each in status_of(oslo).peers] == [overlay.address("paris")]
            # The other one may, and does.
            await reached(oslo, "lyon")
            assert [each.address for each in status_of(oslo).peers] == [overlay.address("paris")]

    run(scenario())


def test_an_address_that_nobody_can_dial_is_refused(overlay: Overlay) -> None:
    async def scenario() -> None:
        wrong = OverlaySettings(name="paris", listen=overlay.address("paris"), address="paris.example")
        with pytest.raises(
            InvalidConfiguration, match=r"overlay.address is 'paris.example'; it must be HOST:PORT"
        ):
            async with overlay.site("paris", overlay=wrong):
                pass

    run(scenario())
