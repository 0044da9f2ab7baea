"""What `culver overlay` prints: the overlay as one site sees it, as tables for people. Pure."""

import time
from collections.abc import Iterator, Sequence

from culver.cli.cluster_text import carrier_lines, cluster_lines, clustering_text
from culver.cli.site_text import duration, moment, percent, size, table
from culver.messages import AdvertisementStatus, ForgottenSite, OtherSite, OverlayStatus, SiteRoute

_NOTHING = "-"
_ALONE = "No other site is known yet: `culver overlay links` shows whom this site dials."


def sites_page(status: OverlayStatus) -> str:
    """The other sites: the ways to them, what they get from here, and what came from there."""
    own = status.site
    where = f"listens for other sites on {own.address}" if own.address else "only dials other sites"
    cluster = "" if own.cluster is None else f", in cluster {own.cluster}{clustering_text(own.clustering)}"
    load = (
        "" if own.load is None else f", {percent(own.load.use)} of {own.load.capacity:,.0f} messages/s used"
    )
    lines = [f"Site {own.name} ({own.key}) {where}; routing {own.routing}{cluster}{load}.", ""]
    if not status.sites:
        return "\n".join([*lines, _ALONE, *_troubles(status), *_gaps(status)])
    in_cluster = () if own.cluster is None else ("CLUSTER",)
    has_clusters = () if own.cluster is None else ("CLUSTERS",)
    lines += table(
        "<<<><><>>",
        ("SITE", "MEMBER", "REACHABLE", "DISTANCE", "WAY", "EVENTS/S", "ADDRESS", "ADVERTISEMENT", "AGE"),
        [
            (
                each.name,
                each.member,
                "yes" if each.reachable else "no",
                _number(each.distance),
                " > ".join(each.path) or _NOTHING,
                _NOTHING if each.events_per_second is None else f"{each.events_per_second:,.1f}",
                ", ".join(each.addresses) or _NOTHING,
                _NOTHING if each.advertisement is None else str(each.advertisement.version),
                _age(each.advertisement),
            )
            for each in status.sites
        ],
    )
    lines += ["", f"From {own.name} to them, by positions in the log here:", ""]
    lines += table(
        "<>>>>>>" + ">" * len(in_cluster),
        (
            "SITE",
            "IN EFFECT FROM",
            "ACKNOWLEDGED",
            "BACKLOG",
            "UNDER WAY",
            "WAITING",
            "SENT AGAIN",
            *in_cluster,
        ),
        [
            (
                each.name,
                _number(each.in_effect_from),
                _number(each.acknowledged),
                f"{each.pending:,}",
                size(each.bytes_under_way),
                size(each.bytes_waiting),
                f"{each.resends:,}",
                *(_number(each.cluster) for _ in in_cluster),
            )
            for each in status.sites
        ],
    )
    lines += cluster_lines(status)
    lines += ["", f"From them to {own.name}, by positions in their logs:", ""]
    lines += table(
        "<>>>>>" + ">" * len(has_clusters),
        ("SITE", "IN EFFECT FROM", "RECEIVED UP TO", "EVENTS", "FALSE POSITIVES", "SKIPPED", *has_clusters),
        [
            (
                each.name,
                _number(each.applied_from),
                f"{each.received:,}",
                f"{each.events_received:,}",
                _false_positives(each),
                f"{each.skipped:,}",
                *(_number(each.clusters) for _ in has_clusters),
            )
            for each in status.sites
        ],
    )
    return "\n".join([*lines, *_refused_advertisements(status), *_troubles(status), *_gaps(status)])


def links_page(status: OverlayStatus, now: float) -> str:
    """The open links, the addresses that are dialled, and what was refused. `now` is in seconds since the epoch."""
    lines: list[str] = []
    if status.links:
        lines += table(
            "<<<>>>>>>>",
            (
                "PEER", "ADDRESS", "LABEL", "COST", "SENT", "RECEIVED", "QUEUED", "DROPPED", "ROUND TRIP", "OPEN FOR",
            ),
            [
                (
                    each.peer,
                    each.address,
                    each.label or _NOTHING,
                    str(each.cost),
                    size(each.bytes_sent),
                    size(each.bytes_received),
                    size(each.queued_bytes),
                    f"{each.frames_dropped:,}",
                    _NOTHING if each.rtt_seconds is None else moment(each.rtt_seconds),
                    duration(max(0.0, now - each.since)),
                )
                for each in status.links
            ],
        )  # fmt: skip
    else:
        lines.append("No link is open.")
    if status.peers:
        lines += [
            "",
            *table(
                "<<>",
                ("DIALS", "SITE", "ATTEMPTS", "STATE"),
                [
                    (
                        each.address,
                        each.name or _NOTHING,
                        f"{each.attempts:,}",
                        _dialled(each.state, each.failure),
                    )
                    for each in status.peers
                ],
            ),
        ]
    totals = status.totals
    lines += [
        "",
        f"links opened since the start: {totals.links_opened:,}; packets: {totals.packets_sent:,} sent, "
        f"{totals.packets_received:,} received, {totals.packets_dropped:,} dropped",
    ]
    if status.refusals:
        rows = [(f"{each.count:,}", each.source, each.reason) for each in status.refusals]
        lines += ["", "Refused or dropped:", "", *table("><", ("COUNT", "SOURCE", "REASON"), rows)]
    return "\n".join([*lines, *_troubles(status)])


def routes_page(status: OverlayStatus) -> str:
    """The way to every site, and the links between all of them."""
    own = status.site.name
    if not status.sites:
        return _ALONE
    rows = [
        (
            each.name,
            each.next_hop or _NOTHING,
            _number(each.distance),
            " > ".join((own, *each.path)) if each.reachable else "cannot be reached",
        )
        for each in status.sites
    ]
    lines = table("<<>", ("DESTINATION", "NEXT HOP", "COST", "PATH"), rows)
    links = list(_links(status.routes))
    if links:
        lines += ["", "Links between all sites:", "", *table("<>", ("LINK", "COST", ""), links)]
    lines += carrier_lines(status)
    return "\n".join(lines)


def predicates_page(status: OverlayStatus) -> str:
    """What every site asks for, as far as it is known here."""
    own = status.site
    told = "told to all others" if own.cluster is None else "told in its clusters"
    rows = [_predicate(f"{own.name} (here)", own.advertisement, told)]
    for each in status.sites:
        state = "not in effect yet"
        if each.advertisement is not None and each.advertisement.refusal:
            state = f"refused: {each.advertisement.refusal}"
        elif each.in_effect_from is not None:
            state = f"in effect from position {each.in_effect_from:,}"
        if each.advertisement is None:
            unknown = "not heard yet"
            if own.cluster is not None and not each.shares_cluster:
                unknown = f"known in its own clusters alone; {state}"
            rows.append((each.name, *([_NOTHING] * 7), unknown))
            continue
        rows.append(_predicate(each.name, each.advertisement, state))
    heads = ("SITE", "VECTORS", "BITS", "HASHES", "SIZE", "VERSION", "AGE", "ASKS FOR", "STATE")
    return "\n".join([*table("<>>>>>><", heads, rows), *_refused_advertisements(status)])


def _predicate(name: str, seen: AdvertisementStatus, state: str) -> tuple[str, ...]:
    asks = "everything" if seen.matches_everything else "some events" if seen.vectors else "nothing"
    encoding = f"{seen.vectors:,}", f"{seen.bits:,}", str(seen.hashes), size(seen.bytes)
    return name, *encoding, str(seen.version), _age(seen), asks, state


def _links(routes: Sequence[SiteRoute]) -> Iterator[tuple[str, str, str]]:
    """Each pair of linked sites once. A link of which one end alone tells is in no way."""
    told = {(each.site, each.neighbour): each.cost for each in routes}
    for (site, neighbour), cost in sorted(told.items()):
        back = told.get((neighbour, site))
        if back is None:
            yield f"{site} - {neighbour}", str(cost), f"not used: {neighbour} does not tell of it"
        elif site < neighbour:
            yield f"{site} - {neighbour}", str(cost), "" if back == cost else f"{back} the other way"


def _dialled(state: str, failure: str) -> str:
    return f"{state}: {failure}" if failure and failure not in state else state


def _refused_advertisements(status: OverlayStatus) -> list[str]:
    lines = [
        f"{each.name} refuses what {status.site.name} asks for: {each.own_refusal}"
        for each in status.sites
        if each.own_refusal
    ]
    lines += [
        f"{status.site.name} refuses what {each.name} asks for: {each.advertisement.refusal}"
        for each in status.sites
        if each.advertisement is not None and each.advertisement.refusal
    ]
    return ["", *lines] if lines else []


def forgotten_text(forgotten: ForgottenSite, own: str) -> str:
    """What a site has dropped of another one."""
    events = (
        "no event" if not forgotten.events else f"{forgotten.events:,} event{'s' * (forgotten.events > 1)}"
    )
    return f"{own} has forgotten {forgotten.name} ({', '.join(forgotten.keys)}): {events} waited for it."


def _troubles(status: OverlayStatus) -> list[str]:
    return ["", *(f"Trouble: {each}" for each in status.troubles)] if status.troubles else []


def _gaps(status: OverlayStatus) -> list[str]:
    if not status.gaps:
        return []
    rows = [
        (
            each.site,
            f"{each.start:,}",
            # Of a site that lost its directory, nobody may know how far its log was.
            f"{each.end:,}" if each.end > each.start else "unknown",
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.at)),
            each.reason,
        )
        for each in status.gaps
    ]
    heads = ("SITE", "FROM", "TO BELOW", "NOTICED", "REASON")
    return ["", "Gaps: events of other sites that may be missing here.", "", *table("<>><", heads, rows)]


def _false_positives(site: OtherSite) -> str:
    if not site.events_received:
        return f"{site.false_positives:,}"
    return f"{site.false_positives:,} ({percent(site.false_positives / site.events_received)})"


def _age(seen: AdvertisementStatus | None) -> str:
    return _NOTHING if seen is None or seen.age_seconds is None else duration(seen.age_seconds)


def _number(value: int | None) -> str:
    return _NOTHING if value is None else f"{value:,}"
