"""Placement: which sets of registrations slices work on, and which of them get an event.

placement     the protocol, and what a route is       mpartition    by several dimensions, in layers (and by one)
replicated    one set, which any slice may work on    layer         registrations narrow in the same dimensions
hashed        one slice by number, events to all      division      one dimension, by `ranges` or `buckets`
kmeans        by likeness, events where they match    learning      which dimensions, and where to cut them
auto          which of them to choose, and why        redivision    what becomes of sets when a slice comes or goes
expected      what a placement would cost             pace          what an event costs where all slices are at work
"""

from culver.placement.auto_choice import Choice, Memory, Option, applications, choose, unweighed
from culver.placement.divisions.dimension_choice import SAMPLE, Dividing
from culver.placement.divisions.layer import load_layer_kernels
from culver.placement.divisions.redivision import Redivision, anew, covering
from culver.placement.expected_cost import expected, is_clearly_better
from culver.placement.forwarding import Adaptive, Forwarding, Load, Random, ResponseTime, SubscriptionCount
from culver.placement.hashed import Hashed
from culver.placement.mpartition import EventSpace, MPartition, OneDimension
from culver.placement.placement import NOWHERE, Chosen, Placement, sets_of
from culver.placement.replicated import Replicated
from culver.placement.set_labels import label_sets
from culver.placement.typical_events import draw_typical_events

__all__ = [
    "NOWHERE",
    "SAMPLE",
    "Adaptive",
    "Choice",
    "Chosen",
    "Dividing",
    "EventSpace",
    "Forwarding",
    "Hashed",
    "Load",
    "MPartition",
    "Memory",
    "OneDimension",
    "Option",
    "Placement",
    "Random",
    "Redivision",
    "Replicated",
    "ResponseTime",
    "SubscriptionCount",
    "anew",
    "applications",
    "choose",
    "covering",
    "draw_typical_events",
    "expected",
    "is_clearly_better",
    "label_sets",
    "load_layer_kernels",
    "sets_of",
    "unweighed",
]
