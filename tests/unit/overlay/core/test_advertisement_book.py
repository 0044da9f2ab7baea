import msgspec
import pytest

from culver.errors import InvalidFilter
from culver.matching import NOTHING
from culver.overlay.core.advertisement_book import AdvertisementBook
from culver.overlay.core.overlay_messages import Advertisement
from support.linked_nodes import BONN, EVERYTHING, LYON, OSLO, PARIS, predicate


def book(open_limit: int = 16, most_sites: int = 16) -> AdvertisementBook:
    return AdvertisementBook(PARIS, 10, open_limit, most_sites)


def whole(site: str, version: int, bit: int) -> Advertisement:
    return Advertisement(site, version, 0, predicate(bit).text, b"")


def hear(here: AdvertisementBook, site: str, version: int, bit: int) -> None:
    here.take(whole(site, version, bit), 0.0)


def test_a_change_has_the_next_version_and_is_the_difference_from_the_last() -> None:
    here, there = book(), AdvertisementBook(LYON, 1, 16, 16)
    there.take(Advertisement(PARIS, 10, 0, NOTHING.text, b""), 0.0)
    message = here.change(predicate(3))
    assert message is not None
    assert (message.version, message.base, message.predicate) == (11, 10, "")
    assert there.is_news(PARIS, 11)
    assert there.fits(message)
    there.take(message, 1.0)
    assert there.sites[PARIS].predicate == predicate(3)
    assert there.whole(PARIS) == here.whole(PARIS)
    assert there.versions() == ((LYON, 1), (PARIS, 11))
    assert not there.is_news(PARIS, 11)


def test_a_predicate_that_stays_is_not_advertised_again() -> None:
    here = book()
    here.change(predicate(3))
    assert here.change(predicate(3)) is None
    assert here.version == 11


def test_a_predicate_with_other_parameters_is_sent_whole() -> None:
    wider = msgspec.structs.replace(EVERYTHING, bits=128, vectors=(bytes(16),))
    assert book().change(wider) == Advertisement(PARIS, 11, 0, wider.text, b"")


def test_a_difference_from_another_version_does_not_fit() -> None:
    here = book()
    here.change(predicate(3))
    message = here.change(predicate(4))
    assert message is not None
    there = AdvertisementBook(LYON, 1, 16, 16)
    assert not there.fits(message)
    hear(there, PARIS, 10, 3)
    assert not there.fits(message)
    assert there.fits(whole(PARIS, 12, 4))


@pytest.mark.parametrize("base", [0, 5])
def test_what_cannot_be_read_changes_nothing(base: int) -> None:
    here = book()
    hear(here, LYON, 5, 3)
    with pytest.raises(InvalidFilter):
        here.take(Advertisement(LYON, 6, base, "encoded 1 rubbish", b"\xc1"), 0.0)
    assert here.whole(LYON) == whole(LYON, 5, 3)
    assert here.whole(BONN) is None


def test_a_site_is_registered_one_version_after_another() -> None:
    here = book()
    hear(here, LYON, 5, 3)
    assert here.next_registration(LYON) == (5, predicate(3))
    hear(here, LYON, 6, 4)
    assert here.next_registration(LYON) is None
    here.registered(LYON, 5, predicate(3), 100)
    assert here.next_registration(LYON) == (6, predicate(4))
    here.registered(LYON, 6, predicate(4), 120)
    assert here.next_registration(LYON) is None
    hear(here, LYON, 7, 4)
    assert here.next_registration(LYON) is None
    assert (here.sites[LYON].registered, here.sites[LYON].position) == (7, 120)


def test_open_predicates_beyond_the_limit_are_refused_until_there_is_room() -> None:
    here = book(open_limit=1)
    for site in (LYON, BONN):
        here.take(Advertisement(site, 1, 0, EVERYTHING.text, b""), 0.0)
    assert here.next_registration(LYON) == (1, EVERYTHING)
    here.registered(LYON, 1, EVERYTHING, 0)
    assert not here.may_register(BONN)
    assert here.next_registration(BONN) is None
    assert "overlay.open_limit" in here.sites[BONN].refusal
    hear(here, LYON, 2, 3)
    here.registered(LYON, 2, predicate(3), 0)
    assert here.may_register(BONN)
    assert here.next_registration(BONN) == (1, EVERYTHING)
    assert here.sites[BONN].refusal == ""


def test_more_sites_than_the_limit_are_refused() -> None:
    here = book(most_sites=2)
    hear(here, LYON, 1, 1)
    hear(here, BONN, 1, 1)
    with pytest.raises(InvalidFilter, match="2 sites"):
        hear(here, OSLO, 1, 1)
    hear(here, LYON, 2, 2)
    assert set(here.sites) == {LYON, BONN}


def test_a_restored_predicate_is_in_effect_when_its_site_still_has_it() -> None:
    here = book()
    here.restore(LYON, predicate(3), 50)
    assert here.whole(LYON) is None
    hear(here, LYON, 8, 3)
    assert here.next_registration(LYON) is None
    assert (here.sites[LYON].registered, here.sites[LYON].position) == (8, 50)


def test_a_restored_predicate_stays_until_its_site_names_its_version() -> None:
    here = book()
    here.restore(LYON, predicate(3), 50)
    hear(here, LYON, 7, 2)
    assert here.next_registration(LYON) is None
    here.confirm(LYON, 9)
    assert here.next_registration(LYON) is None
    hear(here, LYON, 9, 4)
    assert here.next_registration(LYON) == (9, predicate(4))


def test_a_version_is_in_effect_where_it_or_a_later_one_is_applied() -> None:
    here = book()
    for bit in range(5):
        here.change(predicate(bit))
    here.applied(LYON, 12, 100)
    here.applied(LYON, 14, 200)
    here.applied(LYON, 13, 999)
    assert [here.in_effect_from(LYON, version) for version in (11, 12, 13, 14, 15)] == [
        100,
        100,
        200,
        200,
        None,
    ]
    assert here.in_effect_from(BONN, 11) is None
    assert not here.is_answered(LYON)
    here.applied(LYON, 15, 300)
    assert here.is_answered(LYON)


def test_a_refusal_holds_until_the_predicate_changes() -> None:
    here = book()
    here.change(predicate(1))
    here.refused(LYON, 11, "too wide")
    assert here.is_answered(LYON)
    here.change(predicate(2))
    assert not here.is_answered(LYON)
    here.refused(LYON, 11, "too wide")
    assert not here.is_answered(LYON)
    assert here.sites[LYON].own_refusal == ""


def test_a_version_of_an_earlier_run_is_not_taken_for_one_of_this_run() -> None:
    here = book()
    here.change(predicate(1))
    here.applied(LYON, 40, 100)
    assert here.in_effect_from(LYON, 11) is None
    here.applied(LYON, 11, 100)
    assert here.go_beyond(40) == Advertisement(PARIS, 41, 0, predicate(1).text, b"")
    assert here.in_effect_from(LYON, 11) is None
    here.applied(LYON, 30, 100)
    assert here.in_effect_from(LYON, 11) is None
    here.applied(LYON, 41, 120)
    assert here.in_effect_from(LYON, 11) == 120


def test_the_answers_to_a_thousand_versions_are_kept() -> None:
    here = book()
    for number in range(1100):
        here.change(predicate(number % 64))
        here.applied(LYON, here.version, number)
    assert len(here.sites[LYON].applied) == 1024
    assert here.in_effect_from(LYON, 11) == 76
