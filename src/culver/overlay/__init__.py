"""Sites joined across a wide area (B-DRP): each knows the others' encoded predicates, and packets carry the set of
sites that they are for.

site_keys   the key by which sites know one another
links/      the TCP connections between them
core/       the decisions, without input or output
gossip/     who is a member, alive, and where, by gossip
clusters/   another way to route, by clusters and rings: decisions only, which no site uses yet
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.overlay.core.node_instructions import (
        AnnounceGap as AnnounceGap,
        Append as Append,
        CloseLink as CloseLink,
        HearGossip as HearGossip,
        Instruction as Instruction,
        LeaveOverlay as LeaveOverlay,
        MoveCursor as MoveCursor,
        Refuse as Refuse,
        Register as Register,
        Rewind as Rewind,
        SendMessage as SendMessage,
        StoreFloors as StoreFloors,
        Unregister as Unregister,
    )
    from culver.overlay.core.outgoing_streams import MailboxGap as MailboxGap
    from culver.overlay.core.overlay_messages import (
        OverlayMessage as OverlayMessage,
        Packet as Packet,
        StreamAcknowledgement as StreamAcknowledgement,
        decode_message as decode_message,
        encode_message as encode_message,
    )
    from culver.overlay.core.overlay_node import NodeSettings as NodeSettings, OverlayNode as OverlayNode
    from culver.overlay.gossip.gossip_core import GossipCore as GossipCore
    from culver.overlay.gossip.gossip_instructions import (
        FactsChanged as FactsChanged,
        GossipInstruction as GossipInstruction,
        MemberChanged as MemberChanged,
        RefusedGossip as RefusedGossip,
        SendGossip as SendGossip,
    )
    from culver.overlay.gossip.gossip_messages import (
        MemberStatus as MemberStatus,
        decode_gossip as decode_gossip,
        encode_gossip as encode_gossip,
    )
    from culver.overlay.gossip.gossip_settings import GossipSettings as GossipSettings
    from culver.overlay.gossip.lonely_dials import LonelyDials as LonelyDials
    from culver.overlay.gossip.member_table import MemberRecord as MemberRecord
    from culver.overlay.links import (
        Link as Link,
        LinkManager as LinkManager,
        LinkObserver as LinkObserver,
        LinkSettings as LinkSettings,
        Peer as Peer,
        PeerState as PeerState,
    )
    from culver.overlay.links.link_settings import is_dialable as is_dialable
    from culver.overlay.site_keys import (
        NAME as NAME,
        is_site_key as is_site_key,
        name_of as name_of,
        site_key as site_key,
    )
else:
    __getattr__ = lazy_names(__name__)
