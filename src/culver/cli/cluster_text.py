"""Tables about clusters of sites, as `culver overlay` prints them. Pure."""

from culver.cli.site_text import percent, size, table
from culver.messages import ClusteringStatus, OverlayStatus


def cluster_lines(status: OverlayStatus) -> list[str]:
    """The clusters that get this site's events, and what it carries for others. Nothing with another routing."""
    own, lines = status.site.name, []
    if status.clusters:
        heads = (
            "CLUSTER",
            "MEMBERS",
            "CARRIER",
            "ACKNOWLEDGED",
            "CARRIED",
            "BACKLOG",
            "UNDER WAY",
            "SENT AGAIN",
        )
        rows = [
            (
                str(each.cluster),
                ", ".join(each.members) or "-",
                _carrier(each.carrier, each.is_confirmed),
                f"{each.acknowledged:,}",
                f"{each.carried:,}",
                f"{each.pending:,}",
                size(each.bytes_under_way),
                f"{each.resends:,}",
            )
            for each in status.clusters
        ]
        lines += ["", f"Clusters that get what is published at {own}:", "", *table("><<>>>>>", heads, rows)]
    if status.carriages:
        heads_carried = "ORIGIN", "CLUSTER", "MEMBERS", "MATCHED UP TO", "ALL HAVE", "REACHABLE HAVE"
        carried = [
            (
                each.origin,
                str(each.cluster),
                ", ".join(each.members) or "-",
                f"{each.matched:,}",
                f"{each.position:,}",
                f"{each.carried:,}",
            )
            for each in status.carriages
        ]
        lines += ["", f"Carried by {own}, by positions in the logs of the origins:", ""]
        lines += table("<><>>>", heads_carried, carried)
    return lines


def clustering_text(clustering: ClusteringStatus | None) -> str:
    """How many clusters there are for a site's events, and what that rests on."""
    if clustering is None:
        return ""
    text = f" of {clustering.clusters}"
    if clustering.publications is None or clustering.matching_ratio is None:
        return text
    changes, ratio = clustering.changes or 0.0, percent(clustering.matching_ratio)
    return (
        f"{text} (measured: {changes:,.1f} changes for {clustering.publications:,.0f} events, {ratio} match)"
    )


def carrier_lines(status: OverlayStatus) -> list[str]:
    """The ways of this site's events through the carriers of all clusters. Nothing with another routing."""
    if not status.clusters:
        return []
    own = status.site.name
    paths = {each.name: " > ".join((own, *each.path)) for each in status.sites} | {own: own}
    rows = [
        (
            str(each.cluster),
            _carrier(each.carrier, each.is_confirmed),
            paths.get(each.carrier or "", "-"),
            ", ".join(each.members) or "-",
        )
        for each in status.clusters
    ]
    heads = "CLUSTER", "CARRIER", "PATH", "MEMBERS"
    return ["", f"What is published at {own} goes through carriers:", "", *table("><<<", heads, rows)]


def _carrier(name: str | None, is_confirmed: bool) -> str:
    if name is None:
        return "none can be reached"
    return name if is_confirmed else f"{name} (asked)"
