"""Sites joined across a wide area (B-DRP): each knows the others' encoded predicates, and packets carry the set of
sites that they are for.

site_keys   the key by which sites know one another
links/      the TCP connections between them
core/       the decisions, without input or output
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.overlay.core.node_instructions import (
        AnnounceGap as AnnounceGap,
        Append as Append,
        CloseLink as CloseLink,
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
    from culver.overlay.links import (
        Link as Link,
        LinkManager as LinkManager,
        LinkObserver as LinkObserver,
        LinkSettings as LinkSettings,
        Peer as Peer,
        PeerState as PeerState,
    )
    from culver.overlay.site_keys import (
        NAME as NAME,
        is_site_key as is_site_key,
        name_of as name_of,
        site_key as site_key,
    )
else:
    __getattr__ = lazy_names(__name__)
