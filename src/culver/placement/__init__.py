"""Placement: which sets of registrations slices work on, and which of them get an event.

placement        the protocol, and what a route is
fixed_placements replicated: one set, which any slice may work on; hashed: by number, events to all slices
kmeans           by similarity, events to the slices that they may match in
mpartition       by several dimensions, in layers; also by one dimension alone
divisions/       the dimensions of a layer, and how they are divided among slices
forwarding       which of its candidates gets an event
expected_cost    what a placement would cost, from a sample of registrations and of events
auto_choice      which placement to take, and why
"""

from culver.placement.auto_choice import (
    MemoryBudget as MemoryBudget,
    PlacementChoice as PlacementChoice,
    PlacementOption as PlacementOption,
    choose_placement as choose_placement,
    choose_replicated as choose_replicated,
    describe_applications as describe_applications,
)
from culver.placement.divisions.dimension_choice import DivisionOptions as DivisionOptions
from culver.placement.divisions.layer import load_layer_kernels as load_layer_kernels
from culver.placement.expected_cost import (
    LEARNING_SAMPLE as LEARNING_SAMPLE,
    draw_typical_events as draw_typical_events,
    estimate_cost as estimate_cost,
    is_clearly_better as is_clearly_better,
)
from culver.placement.fixed_placements import Hashed as Hashed, Replicated as Replicated
from culver.placement.forwarding import (
    AdaptiveForwarding as AdaptiveForwarding,
    Forwarding as Forwarding,
    RandomForwarding as RandomForwarding,
    ResponseTimeForwarding as ResponseTimeForwarding,
    SetLoad as SetLoad,
    SubscriptionCountForwarding as SubscriptionCountForwarding,
)
from culver.placement.mpartition import (
    EventSpace as EventSpace,
    MPartition as MPartition,
    OneDimension as OneDimension,
    Redivision as Redivision,
    covering_sets as covering_sets,
    redivide_anew as redivide_anew,
)
from culver.placement.placement import (
    NOWHERE as NOWHERE,
    ChosenSets as ChosenSets,
    Placement as Placement,
    sets_of_slice as sets_of_slice,
)
