"""`culver overlay` against a gateway, and the tables that it prints."""

import json
import time

import pytest
from msgspec.structs import replace

from culver.cli import main
from culver.cli.overlay_text import links_page, predicates_page, routes_page, sites_page
from culver.config import GatewaySettings, OverlaySettings, Settings
from culver.messages import (
    CarriageStatus,
    ClusteringStatus,
    ClusterStatus,
    DialledPeer,
    LoadStatus,
    OverlayGap,
    OverlayRefusal,
    OverlayStatus,
    SiteRoute,
)
from support.fake_site import FakeSite
from support.site_thread import site_in_thread

SITES = """\
Site paris (paris~0123456789abcdef) listens for other sites on 127.0.0.1:7401; routing b-drp.

SITE  MEMBER  REACHABLE  DISTANCE  WAY          EVENTS/S  ADDRESS         ADVERTISEMENT  AGE
lyon  alive   yes               1  lyon             12.5  127.0.0.1:7402             17  1 s
oslo  alive   yes               2  lyon > oslo      12.5  127.0.0.1:7402             17  1 s

From paris to them, by positions in the log here:

SITE  IN EFFECT FROM  ACKNOWLEDGED  BACKLOG  UNDER WAY  WAITING  SENT AGAIN
lyon               4             6        2      100 B     50 B           1
oslo               4             6        2      100 B     50 B           1

From them to paris, by positions in their logs:

SITE  IN EFFECT FROM  RECEIVED UP TO  EVENTS  FALSE POSITIVES  SKIPPED
lyon             512              12       7       1 (14.3 %)        0
oslo               -              12       7       1 (14.3 %)        0"""

LINKS = """\
PEER  ADDRESS         LABEL  COST   SENT  RECEIVED  QUEUED  DROPPED  ROUND TRIP  OPEN FOR
lyon  127.0.0.1:7401  -         1  500 B     400 B     0 B        1       10 ms     2 min
oslo  127.0.0.1:7401  -         1  500 B     400 B     0 B        1       10 ms     2 min

DIALS           SITE  ATTEMPTS  STATE
127.0.0.1:7402  -            2  connecting: lost

links opened since the start: 0; packets: 5 sent, 0 received, 0 dropped"""

ROUTES = """\
DESTINATION  NEXT HOP  COST  PATH
lyon         lyon         1  paris > lyon
oslo         lyon         2  paris > lyon > oslo

Links between all sites:

LINK          COST
lyon - oslo      1  3 the other way
lyon - paris     1
paris - rome     4  not used: rome does not tell of it"""

PREDICATES = """\
SITE          VECTORS  BITS  HASHES  SIZE  VERSION  AGE  ASKS FOR     STATE
paris (here)        2   512       5  80 B       17  1 s  some events  told to all others
lyon                2   512       5  80 B       17  1 s  some events  in effect from position 4
oslo                2   512       5  80 B       17  1 s  some events  in effect from position 4"""


CLUSTERS = """
SITE  IN EFFECT FROM  ACKNOWLEDGED  BACKLOG  UNDER WAY  WAITING  SENT AGAIN  CLUSTER
lyon               4             6        2      100 B     50 B           1        0
oslo               4             6        2      100 B     50 B           1        1

Clusters that get what is published at paris:

CLUSTER  MEMBERS     CARRIER  ACKNOWLEDGED  CARRIED  BACKLOG  UNDER WAY  SENT AGAIN
      1  oslo, rome  oslo                6        8        2      100 B           1

Carried by paris, by positions in the logs of the origins:

ORIGIN  CLUSTER  MEMBERS      MATCHED UP TO  ALL HAVE  REACHABLE HAVE
oslo          0  lyon, paris             40        31              38
"""

CARRIERS = """

What is published at paris goes through carriers:

CLUSTER  CARRIER  PATH                 MEMBERS
      1  oslo     paris > lyon > oslo  oslo, rome"""


def _site() -> FakeSite:
    overlay = OverlaySettings(name="paris", listen="127.0.0.1:7401")
    site = FakeSite(Settings(gateway=GatewaySettings(port=0), overlay=overlay))
    site.overlay.positions_at = {"lyon": 512, "oslo": None}
    return site


def _status() -> OverlayStatus:
    """Three sites in a row, without gaps and refusals."""
    seen = _site().overlay.status()
    assert seen is not None
    lyon, oslo = seen.sites
    links = [
        ("paris", "lyon", 1),
        ("lyon", "paris", 1),
        ("lyon", "oslo", 1),
        ("oslo", "lyon", 3),
        ("paris", "rome", 4),
    ]
    return replace(
        seen,
        sites=[lyon, replace(oslo, distance=2, next_hop="lyon", path=["lyon", "oslo"])],
        routes=[SiteRoute(site=site, neighbour=neighbour, cost=cost) for site, neighbour, cost in links],
        gaps=[],
        refusals=[],
    )


def test_sites_are_tables_for_people() -> None:
    assert sites_page(_status()) == SITES


def test_clusters_and_their_carriers_are_told_with_the_sites_and_the_routes() -> None:
    seen = _status()
    lyon, oslo = seen.sites
    seen = replace(
        seen,
        site=replace(
            seen.site,
            routing="clusters",
            cluster=0,
            clustering=ClusteringStatus(clusters=4, publications=1500.0, changes=12.5, matching_ratio=0.412),
            load=LoadStatus(use=0.124, capacity=5200.0),
        ),
        sites=[
            replace(lyon, cluster=0, clusters=16, shares_cluster=True),
            replace(oslo, cluster=1, clusters=4, advertisement=None),
        ],
        clusters=[
            ClusterStatus(
                cluster=1,
                members=["oslo", "rome"],
                carrier="oslo",
                is_confirmed=True,
                acknowledged=6,
                carried=8,
                pending=2,
                bytes_under_way=100,
                bytes_waiting=0,
                resends=1,
            )
        ],
        carriages=[
            CarriageStatus(
                origin="oslo", cluster=0, members=["lyon", "paris"], matched=40, position=31, carried=38
            )
        ],
    )
    assert CLUSTERS in sites_page(seen)
    assert sites_page(seen).startswith(
        "Site paris (paris~0123456789abcdef) listens for other sites on 127.0.0.1:7401; routing clusters, "
        "in cluster 0 of 4 (measured: 12.5 changes for 1,500 events, 41.2 % match), 12.4 % of 5,200 messages/s used."
    )
    assert [line.split()[-1] for line in sites_page(seen).splitlines()[-3:]] == ["CLUSTERS", "16", "4"]
    assert routes_page(seen).removeprefix(ROUTES) == CARRIERS
    assert predicates_page(seen).splitlines()[1].endswith("told in its clusters")
    assert (
        predicates_page(seen)
        .splitlines()[3]
        .endswith("known in its own clusters alone; in effect from position 4")
    )
    asked = replace(seen.clusters[0], is_confirmed=False), replace(seen.clusters[0], carrier=None)
    assert "oslo (asked)" in routes_page(replace(seen, clusters=[asked[0]]))
    assert "none can be reached" in routes_page(replace(seen, clusters=[asked[1]]))


def test_gaps_and_refused_advertisements_are_told_with_the_sites() -> None:
    seen = _status()
    gap = OverlayGap(
        site="lyon", key="lyon~0123456789abcdef", start=3, end=1900, reason="the site was away", at=0.0
    )
    lyon, oslo = seen.sites
    assert oslo.advertisement is not None
    too_much = replace(oslo.advertisement, matches_everything=True, refusal="16 are the limit")
    seen = replace(
        seen, gaps=[gap], sites=[replace(lyon, own_refusal="too many"), replace(oslo, advertisement=too_much)]
    )
    noticed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(0.0))
    assert sites_page(seen).removeprefix(SITES).splitlines() == [
        "",
        "",
        "lyon refuses what paris asks for: too many",
        "paris refuses what oslo asks for: 16 are the limit",
        "",
        "Gaps: events of other sites that may be missing here.",
        "",
        "SITE  FROM  TO BELOW  NOTICED              REASON",
        f"lyon     3     1,900  {noticed}  the site was away",
    ]
    assert "everything   refused: 16 are the limit" in predicates_page(seen)


def test_gap_may_have_an_end_that_nobody_knows() -> None:
    lost = "the site has lost its data directory"
    gap = OverlayGap(site="lyon", key="lyon~0123456789abcdef", start=3, end=3, reason=lost, at=0.0)
    assert sites_page(replace(_status(), gaps=[gap])).splitlines()[-1].split()[:3] == ["lyon", "3", "unknown"]


def test_site_that_cannot_be_reached_has_no_way() -> None:
    seen = _status()
    away = replace(
        seen.sites[0],
        reachable=False,
        distance=None,
        next_hop=None,
        path=[],
        member="dead",
        addresses=[],
        events_per_second=None,
        advertisement=None,
    )
    seen = replace(seen, sites=[away])
    assert sites_page(seen).splitlines()[3].split() == ["lyon", "dead", "no", "-", "-", "-", "-", "-", "-"]
    assert routes_page(seen).splitlines()[1].split(maxsplit=3) == ["lyon", "-", "-", "cannot be reached"]
    assert predicates_page(seen).splitlines()[2].endswith("not heard yet")


def test_links_are_tables_for_people() -> None:
    assert links_page(_status(), now=130.0) == LINKS


def test_links_tell_what_was_refused_and_why_an_address_does_not_answer() -> None:
    refused = "refused: the peer calls itself bonn, and its certificate is for lyon"
    peer = DialledPeer(address="127.0.0.1:7402", name="bonn", state=refused, attempts=9, failure=refused[9:])
    refusal = OverlayRefusal(source="links", reason="a reason", count=1200)
    lines = links_page(replace(_status(), links=[], peers=[peer], refusals=[refusal]), 0.0).splitlines()
    assert lines[0] == "No link is open."
    assert lines[3] == f"127.0.0.1:7402  bonn         9  {refused}"
    assert lines[-1] == "1,200  links   a reason"


def test_routes_are_tables_for_people() -> None:
    assert routes_page(_status()) == ROUTES


def test_predicates_are_a_table_for_people() -> None:
    assert predicates_page(_status()) == PREDICATES


def test_site_without_others_says_where_to_look() -> None:
    alone = replace(_status(), sites=[], links=[], routes=[])
    for page in (sites_page(alone), routes_page(alone)):
        assert page.endswith("No other site is known yet: `culver overlay links` shows whom this site dials.")
    assert len(predicates_page(alone).splitlines()) == 2


def test_every_page_has_its_part_of_the_answer_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    members = {
        "sites": {"site", "sites", "clusters", "carriages", "gaps", "troubles"},
        "links": {"links", "peers", "refusals", "troubles", "totals"},
        "routes": {"site", "routes", "links", "clusters"},
        "predicates": {"site", "advertisement", "sites"},
    }
    with site_in_thread(_site()) as url:
        for name, expected in members.items():
            assert main(["overlay", name, "--json", "--url", url]) == 0
            shown = capsys.readouterr().out
            assert json.loads(shown).keys() == expected
            assert shown.count("\n") == 1
        assert main(["overlay", "routes", "--url", url]) == 0
        assert capsys.readouterr().out.startswith("DESTINATION")


def test_sites_and_links_tell_of_trouble() -> None:
    seen = replace(_status(), troubles=["several sites are called lyon"])
    for page in (sites_page(seen), sites_page(replace(seen, sites=[])), links_page(seen, 0.0)):
        assert page.splitlines()[-1] == "Trouble: several sites are called lyon"


def test_forgotten_site_is_named_with_what_waited_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    site = _site()
    site.overlay.unreachable = {"lyon", "oslo"}
    with site_in_thread(site) as url:
        assert main(["overlay", "forget", "lyon", "--url", url]) == 0
        told = "paris has forgotten lyon (lyon~0123456789abcdef): 2 events waited for it.\n"
        assert capsys.readouterr().out == told
        assert main(["overlay", "forget", "oslo", "--json", "--url", url]) == 0
        assert json.loads(capsys.readouterr().out)["events"] == 2
        assert main(["overlay", "forget", "lyon", "--url", url]) == 1
        assert "no other site called lyon" in capsys.readouterr().err


def test_site_that_can_be_reached_is_not_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    with site_in_thread(_site()) as url:
        assert main(["overlay", "forget", "lyon", "--url", url]) == 1
    assert capsys.readouterr().err == "culver: lyon can be reached\n"


def test_site_in_no_overlay_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    with site_in_thread() as url:
        assert main(["overlay", "sites", "--url", url]) == 1
    assert capsys.readouterr().err == (
        "culver: this site is in no overlay: start it with culver serve --name NAME --overlay HOST:PORT\n"
    )


def test_site_that_is_not_there_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with site_in_thread() as url:
        pass
    assert main(["overlay", "links", "--url", url]) == 1
    told = capsys.readouterr().err
    assert told.startswith("culver: ")
    assert told.endswith("is a site running there? `culver serve` starts one\n")
