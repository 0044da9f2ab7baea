"""Seeded simulations that drive the pure cores, the same objects as in production.

virtual_clock       time, and the actions that wait for it
simulated_network   connections between named nodes: latency, loss, resets, half-open ends, partitions
seeded_run          runs of a scenario by a seed: trace, violations, exact replay

redis/              a Redis server in memory, with its order of replies and pushes
core_host           the process of a client or a dispatcher: carries out its core's instructions
delivery_oracle     what the channels promise, and every broken promise
simulated_keeper    the process that keeps the plan
simulated_channels  a world of all these
channel_scenarios   what happens in it: channels that move, and everything that can break

simulated_site      a site of the overlay with its disk, mailboxes and links
site_disk           what outlives its process
overlay_oracle      what the overlay promises, and every broken promise
site_world          a world of such sites, and everything that can break in it
overlay_scenarios   what happens to sites
overlay_baselines   other ways to route than B-DRP's
gossip_simulation   members of the overlay that find each other by gossip: faults, scenarios and figures

clusters/           sites and brokers in clusters, a tree of brokers and a hash table
"""

from culver.simulation.channel_scenarios import random_groups
from culver.simulation.clusters.broker_rivals import BrokerTree, RendezvousRing
from culver.simulation.clusters.cluster_world import BrokerLoads, ClusterWorld, zipf_weights
from culver.simulation.clusters.simulated_cluster_site import SimulatedClusterSite
from culver.simulation.core_host import CoreHost, HostTiming, node_of_server
from culver.simulation.delivery_oracle import DeliveryOracle
from culver.simulation.gossip_simulation import GossipWorld, SpreadRounds, measure_bytes, measure_spread
from culver.simulation.overlay_baselines import (
    CLUSTER_POLICY,
    ROUTING_POLICIES,
    RoutingPolicy,
    encoded_of,
    linked_sites,
    names_only,
    without_destinations,
)
from culver.simulation.overlay_oracle import OverlayOracle
from culver.simulation.redis.redis_keys import ErrorReply
from culver.simulation.redis.redis_node import RedisNode
from culver.simulation.redis.simulated_redis import OutputLimit, RedisPush, RedisSession, SimulatedRedis
from culver.simulation.seeded_run import (
    RunOutcome,
    RunsDiffer,
    Scenario,
    SeededRun,
    SeedFailed,
    TraceRecord,
    check_replay,
    replay_command,
    run_seed,
    run_seeds,
)
from culver.simulation.simulated_channels import ChannelWorld, SimulatedClient
from culver.simulation.simulated_network import (
    ConnectionEnd,
    ConnectionListener,
    LinkQuality,
    LinkTraffic,
    Partition,
    SimulatedNetwork,
)
from culver.simulation.simulated_site import (
    EventPool,
    OverlayWatcher,
    SimulatedSite,
    SiteFaults,
)
from culver.simulation.site_disk import LoggedEvent, SiteDisk, SiteMailbox
from culver.simulation.virtual_clock import VirtualClock, VirtualTimer

__all__ = [
    "CLUSTER_POLICY",
    "ROUTING_POLICIES",
    "BrokerLoads",
    "BrokerTree",
    "ChannelWorld",
    "ClusterWorld",
    "ConnectionEnd",
    "ConnectionListener",
    "CoreHost",
    "DeliveryOracle",
    "ErrorReply",
    "EventPool",
    "GossipWorld",
    "HostTiming",
    "LinkQuality",
    "LinkTraffic",
    "LoggedEvent",
    "OutputLimit",
    "OverlayOracle",
    "OverlayWatcher",
    "Partition",
    "RedisNode",
    "RedisPush",
    "RedisSession",
    "RendezvousRing",
    "RoutingPolicy",
    "RunOutcome",
    "RunsDiffer",
    "Scenario",
    "SeedFailed",
    "SeededRun",
    "SimulatedClient",
    "SimulatedClusterSite",
    "SimulatedNetwork",
    "SimulatedRedis",
    "SimulatedSite",
    "SiteDisk",
    "SiteFaults",
    "SiteMailbox",
    "SpreadRounds",
    "TraceRecord",
    "VirtualClock",
    "VirtualTimer",
    "check_replay",
    "encoded_of",
    "linked_sites",
    "measure_bytes",
    "measure_spread",
    "names_only",
    "node_of_server",
    "random_groups",
    "replay_command",
    "run_seed",
    "run_seeds",
    "without_destinations",
    "zipf_weights",
]
