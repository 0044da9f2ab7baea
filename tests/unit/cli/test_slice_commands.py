"""`culver slices` against a gateway, and the text that it prints."""

import json
from dataclasses import replace

import pytest

from culver.cli import main
from culver.cli.site_text import slices_page
from culver.client.sync_client import connect_sync
from culver.control import ELASTIC_PLACEMENTS
from culver.control.slices import DecisionView
from support.fake_site import FakeSite
from support.gateway import gateway_settings
from support.memory_slices import MemorySlices
from support.site_thread import site_in_thread

SHOWN = """\
placement mpartition: as the setting pipeline.placement says
forwarding adaptive
elastic: the slices keep up

SLICE REGISTRATIONS      SIZE    SENT/S MATCHED/S      BUSY     QUEUE  SETS
0               137   1.37 kB    13.0 k    5.00 k    25.0 %       260  0 3
1               141   1.41 kB    13.0 k    5.00 k    25.0 %       260  1 2 5

SET   REGISTRATIONS      SIZE    SENT/S MATCHED/S     SLICE     QUEUE  OF
0               100   1.00 kB    10.0 k    5.00 k         0       200  layer 0, price
1                30     300 B    3.00 k    5.00 k         1        60  layer 0, price
2               100   1.00 kB    10.0 k    5.00 k         1       200  layer 0, symbol
3                30     300 B    3.00 k    5.00 k         0        60  layer 0, symbol
4                 7      70 B         0               every         0  the rest
5                 4      40 B         0                   1         0  layer 0, backup of 0

layer 0: price (numbers)
  slice 0    below 100
  slice 1    from 100

layer 0: symbol (strings, by their hash)
  slice 0    its share of the values
  slice 1    its share of the values"""


def test_view_is_a_table_for_people() -> None:
    assert slices_page(MemorySlices().view()) == SHOWN


def test_slices_without_layers_and_controller_are_one_table() -> None:
    view = MemorySlices("hashed").view()
    plain = replace(view, sets=view.sets[:2], layers=(), forwarding=None, elastic=False)
    lines = slices_page(plain).splitlines()
    assert len(lines) == 6
    assert lines[1] == "with the placement hashed, slices stay as they are while the site runs"


def test_slices_that_can_change_and_have_no_controller_are_changed_by_hand() -> None:
    lines = slices_page(replace(MemorySlices().view(), elastic=False)).splitlines()
    assert lines[2] == "slices are added and removed by hand only (setting pipeline.elastic)"


@pytest.mark.parametrize("placement", ["replicated", "hashed", "kmeans", *ELASTIC_PLACEMENTS])
def test_list_and_add_agree_whether_slices_can_change(
    placement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site = FakeSite(gateway_settings())
    site.slices = MemorySlices(placement)
    with site_in_thread(site) as url:
        assert main(["slices", "list", "--url", url]) == 0
        fixed = "slices stay as they are while the site runs" in capsys.readouterr().out
        assert main(["slices", "add", "--url", url]) == (1 if fixed else 0)


def test_last_change_is_told_with_its_reason() -> None:
    changed = DecisionView("add", 1, "the backlog has grown", 130.0)
    lines = slices_page(replace(MemorySlices().view(), last_change=changed)).splitlines()
    assert lines[3] == "slice 1 was split 2 min ago: the backlog has grown"


def test_many_slices_are_cut_short() -> None:
    text = slices_page(MemorySlices(lists=[[each] for each in range(100)]).view())
    assert text.count("and 36 more; --json has them all") == 3


def test_slices_are_listed_added_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    site = FakeSite(gateway_settings())
    with site_in_thread(site) as url:
        assert main(["slices", "list", "--url", url]) == 0
        assert capsys.readouterr().out == SHOWN + "\n"
        assert main(["slices", "add", "--url", url, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["slices"]) == 3
        assert main(["slices", "add", "--split", "2", "--url", url]) == 0
        assert "slice 3    from 115" in capsys.readouterr().out
        assert main(["slices", "remove", "0", "--url", url]) == 0
        assert [len(points) for points in site.slices.lists] == [100, 15, 15]
        assert "slice 0 was removed 3 s ago" in capsys.readouterr().out


def test_refusals_are_one_line_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with site_in_thread() as url:
        assert main(["slices", "remove", "9", "--url", url]) == 1
        assert capsys.readouterr().err == "culver: there is no slice 9; there are 0 to 1\n"
        assert main(["slices", "remove", "-1", "--url", url]) == 2


def test_blocking_client_changes_slices_too() -> None:
    with site_in_thread() as url, connect_sync(url) as client:
        assert len(client.slices()["slices"]) == 2
        assert len(client.add_slice(1)["slices"]) == 3
        assert len(client.remove_slice(0)["slices"]) == 2
