"""The parts of one site. `assembly` puts them together."""

from dataclasses import dataclass

from culver.config import Settings
from culver.control import Catalogue
from culver.delivery import Hub
from culver.log import Committer, PublicationLog
from culver.matching import IndexWriter
from culver.pipeline import Engine
from culver.placement import PlacementChoice
from culver.site.event_flow import EventFlow
from culver.site.gateway_group import GatewayGroup
from culver.site.hub_sessions import LiveSubscriptions


@dataclass(frozen=True, slots=True)
class SiteParts:
    settings: Settings
    log: PublicationLog
    committer: Committer
    catalogue: Catalogue
    index: IndexWriter
    choice: PlacementChoice
    flow: EventFlow
    engine: Engine
    hub: Hub
    live: LiveSubscriptions
    group: GatewayGroup
