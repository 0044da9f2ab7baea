"""The instructions of a member. The shell around it, or a simulation, carries them out in their order."""

import msgspec

from culver.overlay.gossip.gossip_messages import GossipMessage, MemberFacts, MemberStatus


class SendGossip(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a member. It may be lost."""

    destination: str
    message: GossipMessage


class MemberChanged(msgspec.Struct, frozen=True, gc=False):
    """A member has another status now."""

    key: str
    status: MemberStatus


class FactsChanged(msgspec.Struct, frozen=True, gc=False):
    """A member has published other facts about itself."""

    key: str
    facts: MemberFacts


class RefusedGossip(msgspec.Struct, frozen=True, gc=False):
    """A message was refused and has changed nothing."""

    source: str
    reason: str


GossipInstruction = SendGossip | MemberChanged | FactsChanged | RefusedGossip
