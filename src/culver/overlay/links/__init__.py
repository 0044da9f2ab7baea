"""TCP connections between sites. Nothing outside this package sees a socket, a certificate or a frame's header.

link_manager      all links of a site; start here
link_settings     where to listen, whom to dial, whom to trust, and the form of addresses
site_link         an open link, and the observer that hears of links
link_table        greets peers and keeps one link for each peer and label; link_choice decides between two
site_connection   one connection: the order of frames, keep-alives, the end; output_queue what waits to be written
listener          accepts connections; dialler makes them, with pauses; tls_contexts the certificates of both
frame_format      how frames lie in the stream; hello and refusals what the first and the last of them say
"""

from culver.overlay.links.dialler import PeerState as PeerState
from culver.overlay.links.hello import SitePeer as SitePeer
from culver.overlay.links.link_manager import LinkManager as LinkManager
from culver.overlay.links.link_settings import SiteLinkSettings as SiteLinkSettings
from culver.overlay.links.site_link import LinkObserver as LinkObserver, SiteLink as SiteLink

# Within the overlay, a link is always one between sites.
Link = SiteLink
LinkSettings = SiteLinkSettings
Peer = SitePeer
