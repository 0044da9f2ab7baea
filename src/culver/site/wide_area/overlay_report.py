"""The answer of `/v1/overlay`, from all parts of the overlay at one moment."""

from math import isfinite
from typing import TYPE_CHECKING

from culver.matching import EncodedPredicate, SitePredicate
from culver.messages import (
    AdvertisementStatus,
    DialledPeer,
    LinkStatus,
    OtherSite,
    OverlayGap,
    OverlayRefusal,
    OverlayStatus,
    OverlayTotals,
    OwnSite,
    SiteRoute,
)
from culver.overlay import Link, is_site_key, name_of

if TYPE_CHECKING:
    from culver.site.wide_area.overlay_runner import OverlayRunner

_MOST_REFUSALS = 100


def report(runner: "OverlayRunner") -> OverlayStatus:
    node, book, totals, strategy = runner.node, runner.node.book, runner.traffic, runner.strategy
    return OverlayStatus(
        site=OwnSite(
            name=runner.settings.name,
            key=runner.key,
            address=runner.address,
            routing=runner.settings.routing,
            cluster=strategy.cluster_of(node.own),
            clustering=strategy.clustering(),
            load=strategy.load(),
            advertisement=_advertisement(
                book.version, book.predicate, _age(runner, runner.advertised_at), refusal=""
            ),
        ),
        sites=[_site(runner, key) for key in runner.other_sites()],
        links=[_link(link) for link in runner.traffic.links.values()],
        peers=[
            DialledPeer(
                address=each.address,
                name=name_of(each.key) if is_site_key(each.key) else None,
                state=each.state,
                attempts=each.attempts,
                failure=each.failure,
            )
            for each in (() if runner.links is None else runner.links.peers)
        ],
        routes=[
            SiteRoute(site=name_of(state.site), neighbour=name_of(neighbour), cost=cost)
            for state in sorted(node.states.states.values(), key=lambda each: each.site)
            if not node.is_forgotten(state.site)
            for neighbour, cost in state.links
            if is_site_key(neighbour)
        ],
        gaps=[
            OverlayGap(
                site=name_of(gap.origin),
                key=gap.origin,
                start=gap.start,
                end=gap.end,
                reason=gap.reason,
                at=gap.at,
            )
            for gap in runner.file.gaps
        ],
        refusals=[
            OverlayRefusal(source=source, reason=reason, count=count)
            for (source, reason), count in runner.refusals.most_common(_MOST_REFUSALS)
        ],
        troubles=[*runner.troubles, *strategy.troubles(), *node.troubles()],
        totals=OverlayTotals(
            packets_sent=totals.packets_sent,
            packets_received=totals.packets_received,
            packets_dropped=totals.packets_dropped,
            bytes_sent=totals.bytes_sent(),
            bytes_received=totals.bytes_received(),
            frames_dropped=totals.frames_dropped(),
            links_opened=totals.links_opened,
            gaps=runner.file.gap_count,
            refusals=runner.refusals.total(),
        ),
        clusters=strategy.clusters(runner.mailboxes_of_sites.pending),
        carriages=strategy.carriages(),
    )


def _site(runner: "OverlayRunner", key: str) -> OtherSite:
    node, strategy = runner.node, runner.strategy
    member = runner.membership.member(key)
    facts = None if member is None else member.facts
    next_hop = node.states.next_hop(key)
    stream = strategy.stream_of(key)
    flying, waiting, resends = node.outgoing.backlog(stream) if stream is not None else (0, 0, 0)
    advertisement = None
    if (known := strategy.advertised_by(key)) is not None:
        age = None if known.heard_at is None else _age(runner, known.heard_at)
        advertisement = _advertisement(known.version, known.predicate, age, known.refusal)
    return OtherSite(
        name=name_of(key),
        key=key,
        reachable=node.states.reaches(key),
        distance=node.states.distance(key),
        next_hop=None if next_hop is None else name_of(next_hop),
        path=[name_of(each) for each in node.states.path(key)],
        member="unknown" if member is None else member.status.name.lower(),
        addresses=[] if facts is None else list(facts.addresses),
        events_per_second=None if facts is None else _rate(facts.loads.get("events_per_second")),
        cluster=strategy.cluster_of(key),
        clusters=strategy.cluster_count(key),
        shares_cluster=strategy.shares_cluster(key),
        advertisement=advertisement,
        in_effect_from=strategy.in_effect_from(key),
        acknowledged=None if stream is None else node.outgoing.acknowledged_position(stream),
        pending=0 if stream is None else runner.mailboxes_of_sites.pending(stream),
        bytes_under_way=flying,
        bytes_waiting=waiting,
        resends=resends,
        applied_from=node.book.in_effect_from(key, node.book.version),
        own_refusal=strategy.refusal_by(key),
        received=node.incoming.durable(key),
        events_received=runner.imported.received[key],
        false_positives=runner.false_positives.counts[key],
        skipped=runner.imported.skipped[key],
    )


def _rate(told: float | None) -> float | None:
    """A rate that another site has told, if it can be one."""
    return told if told is not None and isfinite(told) and told >= 0 else None


def _advertisement(
    version: int, predicate: SitePredicate, age_seconds: float | None, refusal: str
) -> AdvertisementStatus:
    if isinstance(predicate, EncodedPredicate):
        vectors, bits, hashes = len(predicate.vectors), predicate.bits, predicate.hashes
    else:
        vectors, bits, hashes = len(predicate.clauses), 0, 0
    return AdvertisementStatus(
        version=version,
        vectors=vectors,
        bits=bits,
        hashes=hashes,
        bytes=len(predicate.text),
        age_seconds=age_seconds,
        matches_everything=predicate.matches_everything,
        refusal=refusal,
    )


def _link(link: Link) -> LinkStatus:
    return LinkStatus(
        peer=name_of(link.peer.key),
        key=link.peer.key,
        address=link.peer.address,
        label=link.peer.label,
        cost=link.peer.cost,
        bytes_sent=link.bytes_sent,
        bytes_received=link.bytes_received,
        frames_sent=link.frames_sent,
        frames_received=link.frames_received,
        frames_dropped=link.frames_dropped,
        queued_bytes=link.queued_bytes,
        rtt_seconds=link.rtt_seconds,
        since=link.since,
    )


def _age(runner: "OverlayRunner", since: float) -> float | None:
    return max(0.0, runner.now() - since) if since else None
