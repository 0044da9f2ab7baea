"""The control plane: the catalogue, compaction, placement, elasticity and observation."""

from culver.control.catalog import Catalog
from culver.control.elastic_slices import ElasticSlices
from culver.control.elasticity import Add, Controller, ElasticitySettings, SliceLoad, elasticity_settings
from culver.control.index_division import open_index
from culver.control.placement_measurement import dividing_of, recent_events
from culver.control.slice_rates import Meter
from culver.control.slice_views import (
    DimensionView,
    FixedSlices,
    SegmentView,
    SetView,
    Slices,
    SlicesView,
    SliceView,
    Value,
)

__all__ = [
    "Add",
    "Catalog",
    "Controller",
    "DimensionView",
    "ElasticSlices",
    "ElasticitySettings",
    "FixedSlices",
    "Meter",
    "SegmentView",
    "SetView",
    "SliceLoad",
    "SliceView",
    "Slices",
    "SlicesView",
    "Value",
    "dividing_of",
    "elasticity_settings",
    "open_index",
    "recent_events",
]
