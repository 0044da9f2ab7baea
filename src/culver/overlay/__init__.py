"""Sites joined across a wide area: packets carry the set of sites that they are for. There are two ways to route.

site_keys      the key by which sites know one another
routing_node   what every way to route offers
links/         the TCP connections between sites
core/          B-DRP: each site knows the others' encoded predicates. Decisions, without input or output
clusters/      clusters and rings: each site knows the predicates of its own clusters. Decisions likewise
gossip/        who is a member, alive, and where, by gossip
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.overlay.clusters.carriage import Carriage as Carriage, ClusterMatcher as ClusterMatcher
    from culver.overlay.clusters.cluster_instructions import (
        MemberClaim as MemberClaim,
        SendNote as SendNote,
        StoreAdvertisement as StoreAdvertisement,
        StoreClaims as StoreClaims,
        cluster_key as cluster_key,
        cluster_of_key as cluster_of_key,
    )
    from culver.overlay.clusters.cluster_messages import (
        CarriageReport as CarriageReport,
        ClusterNote as ClusterNote,
        MemberPosition as MemberPosition,
        decode_frame as decode_frame,
        encode_frame as encode_frame,
    )
    from culver.overlay.clusters.cluster_node import ClusterNode as ClusterNode
    from culver.overlay.clusters.origin_clustering import (
        ClusterSettings as ClusterSettings,
        MeasuringSettings as MeasuringSettings,
    )
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
    from culver.overlay.routing_node import (
        OwnAdvertisement as OwnAdvertisement,
        RoutingFrame as RoutingFrame,
        RoutingInstruction as RoutingInstruction,
        RoutingNode as RoutingNode,
    )
    from culver.overlay.site_keys import (
        NAME as NAME,
        is_site_key as is_site_key,
        name_of as name_of,
        site_key as site_key,
    )
else:
    __getattr__ = lazy_names(__name__)
