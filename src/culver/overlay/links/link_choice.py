"""Which of two connections between the same two sites under the same label becomes, or stays, the link.

Only the site with the smaller key chooses, and tells the other with an OPEN frame. The two can therefore never keep
different ones, whatever the order in which either sees them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contender:
    """A connection as the choice sees it: the peer's boot, who dialled, and whether nothing has arrived for longer
    than a keep-alive."""

    boot: int
    dialled_by_smaller_key: bool
    silent: bool = False


def replaces(fresh: Contender, standing: Contender) -> bool:
    """Tells whether a fresh connection takes the place of the standing one.

    A newer boot does: the peer has restarted, and the old socket may be half open. An older one never does. Among
    connections of one boot, the fresh one replaces a silent one, and one that the site with the larger key dialled if
    it was dialled by the other site itself.
    """
    if fresh.boot != standing.boot:
        return fresh.boot > standing.boot
    if standing.silent:
        return True
    return fresh.dialled_by_smaller_key and not standing.dialled_by_smaller_key
