import pytest

from culver.overlay.core.overlay_messages import SiteNumbers
from culver.overlay.core.site_numbers import NumberTable, UnknownNumber
from support.linked_nodes import BONN, LYON, OSLO, PARIS


def test_sets_of_sites_arrive_as_they_were_sent() -> None:
    here, there = NumberTable(), NumberTable()
    told = here.number([LYON, BONN])
    assert told == SiteNumbers(0, (LYON, BONN))
    assert there.learn(told)
    more = here.number([BONN, OSLO])
    assert more == SiteNumbers(2, (OSLO,))
    assert there.learn(more)
    assert here.bits([OSLO, LYON]) == bytes([0b101])
    assert there.sites(here.bits([OSLO, LYON])) == [LYON, OSLO]
    assert there.sites(here.bits([])) == []


def test_sites_that_have_numbers_are_not_told_again() -> None:
    table = NumberTable()
    table.number([LYON])
    assert table.number([LYON]) is None
    assert table.number_of(LYON) == 0


def test_a_hundred_sites_take_thirteen_bytes() -> None:
    table = NumberTable()
    sites = [f"s{number}~{'0' * 16}" for number in range(100)]
    table.number(sites)
    assert len(table.bits(sites)) == 13


@pytest.mark.parametrize("bits", [b"\x02", b"\x00\x00\x01", b"\xff" * 9000])
def test_a_number_that_was_never_told_is_unknown(bits: bytes) -> None:
    table = NumberTable()
    table.learn(SiteNumbers(0, (LYON,)))
    with pytest.raises(UnknownNumber):
        table.sites(bits)


@pytest.mark.parametrize(
    "numbers",
    [
        SiteNumbers(0, (PARIS,)),
        SiteNumbers(2, (PARIS,)),
        SiteNumbers(1, ("no key",)),
        SiteNumbers(1, (PARIS,) * 65_536),
    ],
)
def test_numbers_out_of_turn_are_not_learnt(numbers: SiteNumbers) -> None:
    table = NumberTable()
    assert table.learn(SiteNumbers(0, (LYON,)))
    assert not table.learn(numbers)
    with pytest.raises(UnknownNumber):
        table.sites(b"\x02")
