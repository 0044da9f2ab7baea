"""The control plane: what steers the pipeline, and what can be seen of a site.

    registry --changes--> Catalogue --index versions--> head --> engine          (the data path, `culver.pipeline`)
                             |   ^                                 |
                        Compactor  ElasticSlices <--- SliceMeter <--- SiteObservation ---> SiteRates
                        (merges)   (adds, removes and redivides slices, as ElasticityController says)

In reading order:

    catalogue         takes a change of subscriptions into the registry and the index
    compactor         merges the segments of the index in the background
    index_placement   opens a site's index with its placement, and weighs placements for the setting `auto`
    placement_trial   measures what an event costs with a placement
    elasticity        decides when to add a slice, and when to remove one
    elastic_slices    changes the slices of a running site: by hand, by the controller, as subscriptions change
    slices            the slices of a site as records, their rates, the role `Slices`, and slices that never change
    site_observation  a whole site at one moment, and the rates between two, which `culver top` shows
    site_clock        the clock by which ages and lifetimes are judged

Nothing but the clock, which stamps events, lies on an event's path: an engine goes on matching with the last head
while all of this stands still.
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.control.catalogue import Catalogue as Catalogue
    from culver.control.elastic_slices import slices_of as slices_of
    from culver.control.elasticity import (
        ELASTIC_PLACEMENTS as ELASTIC_PLACEMENTS,
        ElasticityController as ElasticityController,
        ElasticitySettings as ElasticitySettings,
        SliceLoad as SliceLoad,
        elasticity_settings as elasticity_settings,
    )
    from culver.control.index_placement import open_index as open_index
    from culver.control.site_clock import ClockFile as ClockFile, SiteClock as SiteClock
    from culver.control.site_observation import (
        BatchRates as BatchRates,
        GatewayInfo as GatewayInfo,
        IndexScheme as IndexScheme,
        IndexSlice as IndexSlice,
        OperatorRates as OperatorRates,
        PlacementInfo as PlacementInfo,
        SchemeRates as SchemeRates,
        SiteObservation as SiteObservation,
        SiteQueues as SiteQueues,
        SiteRates as SiteRates,
        SliceShares as SliceShares,
        rates_between as rates_between,
    )
    from culver.control.slices import (
        DimensionSegment as DimensionSegment,
        DimensionView as DimensionView,
        SegmentBound as SegmentBound,
        SetView as SetView,
        Slices as Slices,
        SlicesView as SlicesView,
        SliceView as SliceView,
    )
else:
    __getattr__ = lazy_names(__name__)
