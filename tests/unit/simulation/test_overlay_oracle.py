"""The oracle hears of wrong histories, and must find what is wrong with them."""

from types import SimpleNamespace
from typing import cast

import pytest

from culver.matching import NOTHING, EncodedPredicate
from culver.overlay import AnnounceGap, NodeSettings, OverlayNode, Packet, Refuse, site_key
from culver.overlay.core.overlay_messages import LinkState, StreamPart
from culver.overlay.core.replaced_sites import FORGOTTEN
from culver.simulation import EventPool, LoggedEvent, OverlayOracle, SeededRun, SimulatedSite
from culver.simulation.site_disk import SiteDisk, SiteMailbox
from support.linked_nodes import EVERYTHING, LYON, PARIS

NUMBER = 3


class Story:
    """Paris publishes events 0 to 5, all of which Lyon wants, and has been promised from offset 1 on."""

    def __init__(self, *, watches_links: bool = False, wants: EncodedPredicate = EVERYTHING) -> None:
        self.run = SeededRun(0)
        pool = EventPool((), lambda predicate, number: predicate != NOTHING, lambda subscriptions: wants)
        self.oracle = OverlayOracle(self.run, pool, lambda number, event: True, watches_links=watches_links)
        self.paris, self.lyon = self.site(PARIS), self.site(LYON)
        self.paris.disk.log.extend(LoggedEvent(number) for number in range(6))
        for offset in range(6):
            self.oracle.published(self.paris, offset)
        self.oracle.advertised(self.lyon, wants)
        self.lyon.disk.subscriptions.add(NUMBER)
        self.lyon.versions[NUMBER] = 5
        assert self.lyon.node is not None
        self.lyon.node.book.applied(PARIS, 5, 1)

    @staticmethod
    def site(key: str) -> SimulatedSite:
        disk = SiteDisk(b"identity")
        node = OverlayNode(key, 5, 0, {}, NodeSettings())
        name = key.partition("~")[0]
        return cast(SimulatedSite, SimpleNamespace(key=key, name=name, disk=disk, node=node, versions={}))

    def receive(self, *offsets: int) -> None:
        for offset in offsets:
            self.oracle.appended(self.lyon, LoggedEvent(offset, PARIS, offset))

    def violations(self, *, paris_is_lost: bool = False, everything: bool = False) -> list[str]:
        sites = [self.lyon] if paris_is_lost else [self.paris, self.lyon]
        self.oracle.check(sites, everything=everything)
        return [text.partition(": ")[2] for text in self.run.violations]


def test_a_site_that_has_what_it_was_promised_is_content() -> None:
    story = Story()
    story.receive(1, 2, 3, 4, 5)
    assert story.violations() == []
    assert story.oracle.deliveries == 5


def test_a_lost_event_is_found() -> None:
    story = Story()
    story.receive(1, 2, 4, 5)
    assert story.violations() == [f"{LYON} has no event 3 of {PARIS}, which {NUMBER} wants"]


def test_a_doubled_event_is_found() -> None:
    story = Story()
    story.receive(1, 2, 2, 3, 4, 5)
    assert story.violations() == [f"{LYON} has 2 of {PARIS} twice"]


def test_a_misordered_event_is_found() -> None:
    story = Story()
    story.receive(1, 3, 2, 4, 5)
    assert story.violations() == [f"{LYON} has 2 of {PARIS} out of order"]


def test_an_event_that_nobody_asked_for_is_found() -> None:
    story = Story(wants=NOTHING)
    story.receive(1, 2, 3, 4, 5)
    assert f"{LYON} never asked for 1 of {PARIS}" in story.violations()


def test_an_event_with_another_content_is_found() -> None:
    story = Story()
    story.oracle.appended(story.lyon, LoggedEvent(4, PARIS, 1))
    story.receive(2, 3, 4, 5)
    assert story.violations() == [f"{LYON} has another event 1 of {PARIS} than was published"]


@pytest.mark.parametrize(
    ("gap", "paris_is_lost", "is_excused"),
    [
        (AnnounceGap(PARIS, 3, 6, "full"), False, True),
        (AnnounceGap(PARIS, 3, 5, "full"), False, False),
        (AnnounceGap(PARIS, 4, 6, "full"), False, False),
        (AnnounceGap(LYON, 3, 6, "full"), False, False),
        (AnnounceGap(PARIS, 3, 3, FORGOTTEN), True, True),
        (AnnounceGap(PARIS, 4, 4, FORGOTTEN), True, False),
        (AnnounceGap(PARIS, 3, 3, FORGOTTEN), False, False),
    ],
)
def test_a_loss_is_excused_by_an_announced_gap(
    gap: AnnounceGap, paris_is_lost: bool, is_excused: bool
) -> None:
    story = Story()
    story.receive(1, 2)
    story.oracle.gap(story.lyon, gap)
    assert (story.violations(paris_is_lost=paris_is_lost) == []) == is_excused
    assert story.oracle.gap_reasons == {gap.reason: 1}


def go_back(story: Story, length: int) -> None:
    """Paris runs on a copy of its disk from when its log had that length, and publishes other events at the offsets
    from there on."""
    lost = story.paris.disk.copy()
    del story.paris.disk.log[length:]
    story.oracle.restored(story.paris, lost)
    story.paris.disk.log.extend(LoggedEvent(10 + number) for number in range(length, 6))
    for offset in range(length, 6):
        story.oracle.published(story.paris, offset)


def test_an_offset_that_is_given_anew_is_another_event() -> None:
    story = Story()
    story.receive(1, 2, 3, 4, 5)
    go_back(story, 4)
    assert story.violations() == [f"{LYON} has no event 4 of {PARIS}, which {NUMBER} wants"]


def test_offsets_that_are_given_anew_are_excused_by_an_announced_gap() -> None:
    story = Story()
    story.receive(1, 2, 3, 4, 5)
    go_back(story, 4)
    story.oracle.gap(story.lyon, AnnounceGap(PARIS, 4, 6, "older"))
    assert story.violations() == []


@pytest.mark.parametrize(("since", "is_excused"), [(1, True), (0, False)])
def test_a_copy_with_an_earlier_filter_of_the_same_position_is_excused(since: int, is_excused: bool) -> None:
    story = Story()
    story.receive(1, 2, 3, 4, 5)
    mailboxes = story.paris.disk.mailboxes
    mailboxes[LYON] = SiteMailbox(EVERYTHING, 1, 0, 0)
    lost = story.paris.disk.copy()
    mailboxes[LYON] = SiteMailbox(NOTHING, since, 0, 0)
    story.oracle.restored(story.paris, lost)
    story.paris.disk.log.append(LoggedEvent(16))
    story.oracle.published(story.paris, 6)
    assert (story.violations() == []) == is_excused


PARIS_2, LYON_2 = site_key("paris", bytes([2] * 8)), site_key("lyon", bytes([2] * 8))


@pytest.mark.parametrize(("start", "is_excused"), [(4, True), (5, False)])
def test_a_new_key_must_tell_from_where_on_offsets_were_given_anew(start: int, is_excused: bool) -> None:
    story = Story()
    story.receive(1, 2, 3, 4)
    go_back(story, 4)
    story.paris.key = PARIS_2
    story.oracle.renewed(story.paris, PARIS)
    story.oracle.gap(story.lyon, AnnounceGap(PARIS, start, 6, FORGOTTEN))
    assert (story.violations() == []) == is_excused


def test_a_site_that_loses_its_directory_after_it_went_back_cannot_tell() -> None:
    story = Story()
    story.receive(1, 2, 3, 4)
    go_back(story, 4)
    story.oracle.gap(story.lyon, AnnounceGap(PARIS, 5, 6, FORGOTTEN))
    assert story.violations(paris_is_lost=True) == []


def test_a_promise_outlives_the_key_that_was_given_it() -> None:
    story = Story()
    story.receive(1, 2, 3)
    story.oracle.crashing(story.lyon)
    story.lyon.key = LYON_2
    story.oracle.renewed(story.lyon, LYON)
    story.lyon.node = OverlayNode(LYON_2, 90, 0, {}, NodeSettings())
    story.lyon.versions.clear()
    assert story.violations() == [f"{LYON_2} has no event 4 of {PARIS}, which {NUMBER} wants"]


def test_nobody_misses_what_only_the_lost_state_had() -> None:
    story = Story()
    story.receive(1, 2, 3)
    del story.paris.disk.log[4:]
    story.oracle.restored(story.paris, story.paris.disk)
    assert story.violations() == []


def test_a_promise_outlives_the_run_that_was_given_it() -> None:
    story = Story()
    story.oracle.crashing(story.lyon)
    story.lyon.node = OverlayNode(LYON, 90, 0, {}, NodeSettings())
    story.lyon.versions.clear()
    assert story.violations() == [f"{LYON} has no event 1 of {PARIS}, which {NUMBER} wants"]


def test_a_promise_ends_with_its_subscription() -> None:
    story = Story()
    story.oracle.crashing(story.lyon)
    story.lyon.disk.subscriptions.clear()
    story.oracle.unsubscribed(LYON, NUMBER)
    assert story.violations() == []


def test_a_subscription_that_never_takes_effect_is_found() -> None:
    story = Story()
    story.receive(1, 2, 3, 4, 5)
    story.paris.disk.subscriptions.add(7)
    assert story.violations(everything=True) == [f"7 of {PARIS} is not in effect at {LYON}"]


def test_an_event_that_crosses_a_link_twice_is_found() -> None:
    story = Story(watches_links=True)
    for offsets in ((1, 2), (3,), (2,)):
        packet = Packet(PARIS, 1, 1, b"\x01", (StreamPart(0, 3, 1),), offsets, (b"e",) * len(offsets))
        story.oracle.sent(story.paris, "lyon", packet)
    assert story.run.violations == [f"at 0.000000: 2 of {PARIS} crosses paris - lyon twice"]


def test_a_detour_is_found() -> None:
    story = Story(watches_links=True)
    node = story.lyon.node
    assert node is not None
    node.states.take(LinkState(LYON, 99, ((PARIS, 1),), 0), 0.0)
    node.states.take(LinkState(PARIS, 99, ((LYON, 1),), 0), 0.0)
    for hops in (2, 3):
        packet = Packet(PARIS, hops, hops, b"\x01", (StreamPart(0, 3, 1),), (hops,), (b"e",))
        story.oracle.sent(story.lyon, "bonn", packet)
    assert story.run.violations == [f"at 0.000000: {PARIS} reaches lyon by 2 links, not 1"]


def test_refusals_are_counted_by_their_reason() -> None:
    story = Story()
    for source in (PARIS, LYON):
        story.oracle.refused(story.lyon, Refuse(source, "no way"))
    assert story.oracle.refusals == {"no way": 2}
