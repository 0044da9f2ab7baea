from culver.overlay.core.neighbours import Neighbours
from support.linked_nodes import BONN, LYON


def test_the_cheapest_link_leads_to_a_neighbour_and_the_oldest_of_equals() -> None:
    neighbours = Neighbours()
    for link, site, cost in ((1, LYON, 5), (2, LYON, 2), (3, LYON, 2), (4, BONN, 9)):
        neighbours.open(link, site, cost)
    assert neighbours.link_to(LYON) == 2
    assert neighbours.costs() == {LYON: 2, BONN: 9}
    assert neighbours.links() == [2, 4]
    assert neighbours.links(but=LYON) == [4]
    assert [neighbours.close(2), neighbours.link_to(LYON)] == [LYON, 3]
    assert [neighbours.close(3), neighbours.link_to(LYON)] == [LYON, 1]
    assert [neighbours.close(1), neighbours.link_to(LYON)] == [LYON, None]
    assert neighbours.close(1) is None


def test_each_link_has_numbers_of_its_own() -> None:
    neighbours = Neighbours()
    neighbours.open(1, LYON, 1)
    neighbours.open(2, LYON, 1)
    neighbours[1].numbers.number([BONN])
    assert neighbours[2].numbers.number([LYON, BONN]) is not None
    assert 1 in neighbours
    assert 3 not in neighbours
