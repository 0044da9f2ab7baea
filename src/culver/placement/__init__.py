"""Placement: which sets of registrations slices work on, and which of them get an event.

placement        the protocol, and what a route is
replicated       one set, which any slice may work on
hashed           one slice by number, events to all slices
kmeans           by similarity, events to the slices that they may match in
mpartition       by several dimensions, in layers; also by one dimension alone
divisions/       the dimensions of a layer, and how they are divided among slices
forwarding       which of its candidates gets an event
expected_cost    what a placement would cost, from a sample
typical_events   events to learn from where there are none
auto_choice      which placement to take, and why
"""

from culver.placement.auto_choice import (
    MemoryBudget,
    PlacementChoice,
    PlacementOption,
    choose_placement,
    choose_replicated,
    describe_applications,
)
from culver.placement.divisions.dimension_choice import DivisionOptions
from culver.placement.divisions.layer import load_layer_kernels
from culver.placement.divisions.redivision import Redivision, covering_sets, redivide_anew
from culver.placement.expected_cost import LEARNING_SAMPLE, estimate_cost, is_clearly_better
from culver.placement.forwarding import (
    AdaptiveForwarding,
    Forwarding,
    RandomForwarding,
    ResponseTimeForwarding,
    SetLoad,
    SubscriptionCountForwarding,
)
from culver.placement.hashed import Hashed
from culver.placement.mpartition import EventSpace, MPartition, OneDimension
from culver.placement.placement import NOWHERE, ChosenSets, Placement, sets_of_slice
from culver.placement.replicated import Replicated
from culver.placement.typical_events import draw_typical_events

__all__ = [
    "LEARNING_SAMPLE",
    "NOWHERE",
    "AdaptiveForwarding",
    "ChosenSets",
    "DivisionOptions",
    "EventSpace",
    "Forwarding",
    "Hashed",
    "MPartition",
    "MemoryBudget",
    "OneDimension",
    "Placement",
    "PlacementChoice",
    "PlacementOption",
    "RandomForwarding",
    "Redivision",
    "Replicated",
    "ResponseTimeForwarding",
    "SetLoad",
    "SubscriptionCountForwarding",
    "choose_placement",
    "choose_replicated",
    "covering_sets",
    "describe_applications",
    "draw_typical_events",
    "estimate_cost",
    "is_clearly_better",
    "load_layer_kernels",
    "redivide_anew",
    "sets_of_slice",
]
