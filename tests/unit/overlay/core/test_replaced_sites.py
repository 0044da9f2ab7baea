from culver.overlay import site_key
from culver.overlay.core.link_states import LinkStates
from culver.overlay.core.overlay_messages import LinkState
from culver.overlay.core.replaced_sites import ReplacedSites
from support.linked_nodes import BONN, LYON, PARIS

LYON_2, LYON_3 = site_key("lyon", bytes([2] * 8)), site_key("lyon", bytes([3] * 8))
PARIS_0 = site_key("paris", bytes([9] * 8))


def reaching(*sites: str) -> LinkStates:
    """What paris sees when these are its neighbours."""
    states = LinkStates(PARIS)
    states.take(LinkState(PARIS, 1, tuple((site, 1) for site in sites), 0), 0.0)
    for sequence, site in enumerate(sites):
        states.take(LinkState(site, sequence, ((PARIS, 1),), 0), 0.0)
    return states


def test_a_site_is_replaced_by_one_of_its_name_that_can_be_reached() -> None:
    replaced = ReplacedSites(PARIS)
    assert replaced.look(reaching(BONN), [LYON, BONN]) == []
    assert replaced.look(reaching(BONN, LYON_2), [LYON, BONN, LYON_2]) == [LYON]
    assert LYON in replaced
    assert LYON_2 not in replaced


def test_two_sites_of_one_name_that_can_both_be_reached_stay() -> None:
    assert ReplacedSites(PARIS).look(reaching(LYON, LYON_2), [LYON, LYON_2]) == []


def test_a_successor_that_is_away_is_not_replaced_by_old_words_of_its_predecessor() -> None:
    states = reaching(LYON)
    states.take(LinkState(LYON_2, 9, (), 0), 0.0)
    assert ReplacedSites(PARIS).look(states, [LYON, LYON_2]) == []


def test_an_earlier_data_directory_of_this_site_is_replaced_too() -> None:
    replaced = ReplacedSites(PARIS)
    assert replaced.look(reaching(LYON), [PARIS, PARIS_0]) == [PARIS_0]
    replaced.owe(PARIS_0, 5)
    assert replaced.owed(PARIS) is None


def test_a_successor_is_owed_what_its_predecessor_had_not_acknowledged() -> None:
    replaced = ReplacedSites(PARIS)
    replaced.look(reaching(LYON_2), [LYON])
    replaced.owe(LYON, 30)
    assert replaced.owed(LYON_2) == 30
    replaced.told(LYON_2)
    assert replaced.owed(LYON_2) is None


def test_what_a_site_never_heard_of_goes_over_to_its_own_successor() -> None:
    replaced = ReplacedSites(PARIS)
    replaced.look(reaching(LYON_2), [LYON])
    replaced.owe(LYON, 30)
    replaced.look(reaching(LYON_3), [LYON, LYON_2])
    replaced.owe(LYON, None)
    replaced.owe(LYON_2, 80)
    assert replaced.owed(LYON_3) == 30
    assert replaced.owed(LYON_2) is None
