"""The members of the overlay, as this site knows them by gossip: the shell around `GossipCore`.

    links  --opened, closed-->  +--------+  --SendGossip-------------------------> the node routes it
    node   --HearGossip------>  | gossip |  --MemberChanged----------------------> the site's log
    clock  --tick------------>  +--------+  --addresses, where nobody is linked--> diallers

A member publishes the address where others can dial it, and how many events a second its log gets.
"""

import logging
from collections.abc import Callable, Collection
from random import Random

import msgspec

from culver.config import OverlaySettings
from culver.overlay import (
    FactsChanged,
    GossipCore,
    GossipInstruction,
    GossipSettings,
    Link,
    LinkManager,
    LonelyDials,
    MemberChanged,
    MemberRecord,
    RefusedGossip,
    SendGossip,
    decode_gossip,
    encode_gossip,
    name_of,
)

logger = logging.getLogger(__name__)

_LOAD_SECONDS = 5.0
_LOOK_SECONDS = 1.0
# Ways that operators have chosen come first.
_RESCUE_OPTIONS = "?label=rescue&cost=100"
_EVERYWHERE = ("", "0.0.0.0", "::", "[::]")


class SiteMembership:
    """`boot_us` grows with each start. `peers` are the configured addresses, and `known` those that an earlier run
    has heard of, by site. `send` hands bytes to the node for another site, and `refuse` hears of what was refused and
    who sent it."""

    def __init__(
        self,
        key: str,
        boot_us: int,
        settings: OverlaySettings,
        peers: Collection[str],
        known: dict[str, tuple[str, ...]],
        send: Callable[[str, bytes], None],
        refuse: Callable[[str, str], None],
        random: Random,
    ) -> None:
        self.addresses = known
        """The addresses of all other members, by their keys, living or not."""
        self._settings = settings
        self._peers = {each.partition("?")[0] for each in peers}
        self._core = GossipCore(
            key, boot_us // 1_000, GossipSettings(most_members=settings.most_sites), random
        )
        self._dials = LonelyDials(random)
        self._send = send
        self._refuse = refuse
        self._published: tuple[float, int] | None = None
        self._looked_at = float("-inf")

    def member(self, key: str) -> MemberRecord | None:
        return self._core.member(key)

    def linked(self, neighbours: Collection[str], now: float) -> None:
        """A link is open: its site tells of the members that it knows."""
        self._carry_out(self._core.join(neighbours, now))

    def unlinked(self, site: str, now: float) -> None:
        """The last link with a site is closed."""
        self._carry_out(self._core.doubt(site, now))

    def received(self, source: str, body: bytes, now: float) -> None:
        try:
            message = decode_gossip(body)
        except msgspec.DecodeError:
            self._refuse(source, "gossip that cannot be read")
            return
        self._carry_out(self._core.received(source, message, now))

    def leave(self, now: float) -> None:
        """Say farewell: the others need not find out that this site is gone."""
        self._carry_out(self._core.leave(now))

    def tick(self, manager: LinkManager, position: int, now: float) -> None:
        """Do what time asks for. `position` is the end of the log."""
        if now >= self._core.next_due():
            self._carry_out(self._core.tick(now))
        if self._published is None or now - self._published[0] >= _LOAD_SECONDS:
            self._publish(manager, position, now)
        if self._settings.rescue and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._dial_where_lonely(manager, now)

    def _publish(self, manager: LinkManager, position: int, now: float) -> None:
        rate = 0.0
        if self._published is not None:
            began, before = self._published
            rate = (position - before) / (now - began)
        self._published = now, position
        address = public_address(self._settings, manager.port)
        loads = {"events_per_second": round(rate, 1)}
        self._core.publish_facts((address,) if address else (), loads, {}, now)

    def _dial_where_lonely(self, manager: LinkManager, now: float) -> None:
        rescue = {each.partition("?")[0] for each in self._dials.dialled}
        rescued = sum(link.peer.dialled and link.peer.address in rescue for link in manager.links.values())
        addresses = {
            address + _RESCUE_OPTIONS
            for addresses in self.addresses.values()
            for address in addresses
            if address not in self._peers
        }
        changes = self._dials.look(len(manager.links) - rescued, rescued, addresses, now)
        for address in changes.hang_up:
            manager.hang_up(address, "the site has links of its own choice again")
        for address in changes.dial:
            logger.info(
                "no link is open: dialling %s, of which this site has heard", address.partition("?")[0]
            )
            manager.dial(address)

    def _carry_out(self, instructions: list[GossipInstruction]) -> None:
        for each in instructions:
            match each:
                case SendGossip(destination, message):
                    self._send(destination, encode_gossip(message))
                case MemberChanged(key, status):
                    logger.info("%s is %s", name_of(key), status.name.lower())
                case FactsChanged(key, facts):
                    self.addresses[key] = facts.addresses
                    if len(self.addresses) > self._settings.most_sites:
                        del self.addresses[next(iter(self.addresses))]
                case RefusedGossip(source, reason):
                    self._refuse(source, reason)


def public_address(settings: OverlaySettings, port: int) -> str:
    """The address that others can dial; empty where there is none, or nobody has said it."""
    if settings.address or not port:
        return settings.address
    host = settings.listen.rpartition(":")[0]
    return "" if host in _EVERYWHERE else f"{host}:{port}"


def neighbours_of(links: Collection[Link]) -> list[str]:
    return list(dict.fromkeys(link.peer.key for link in links))
