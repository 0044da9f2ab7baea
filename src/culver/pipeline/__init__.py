"""The data path: access point, matching and exit point, run on ranges of the log by an engine.

    log --range--> AP  --events--> M of each slice --found--> EP  --Notifications--> sink (delivery)
                   reads,          searches the sets          joins and groups
                   routes          of the slice               by registration

In reading order:

    operators               AP, M and EP as pure functions on Arrow batches
    range_processor         takes one range through the three, with the log and the index of a site
    batch_plan              what all tasks of a batch are told: index version, slices, and how the sets did lately
    partial_exchange        where the tasks of one range meet, and the file that they exchange
    notifications           the result, and its file
    operator_work           what each operator did; engine_totals adds it up and makes reports of it
    head                    how far an engine may go, and with which index version
    engine                  what an engine is; inline_engine runs in the site's process, `spark` is a room of its own
    site_files              where a site keeps all these files

The pipeline knows neither what steers it (`culver.control`) nor what delivers its results (`culver.delivery`). Every
process of Spark loads the modules that say "Imports nothing heavy".
"""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.pipeline.batch_plan import BatchPlan as BatchPlan, LoadReport as LoadReport
    from culver.pipeline.engine import Engine as Engine, EngineSetup as EngineSetup, Progress as Progress
    from culver.pipeline.engine_totals import (
        BATCH_SECONDS as BATCH_SECONDS,
        BatchTotals as BatchTotals,
        EngineObservation as EngineObservation,
        SchemeTotals as SchemeTotals,
        SliceTotals as SliceTotals,
    )
    from culver.pipeline.head import Head as Head, HeadTracker as HeadTracker
    from culver.pipeline.notifications import (
        NOTIFICATION_SUFFIX as NOTIFICATION_SUFFIX,
        Notifications as Notifications,
        aligned_rows as aligned_rows,
        notification_file_name as notification_file_name,
        parse_notification_file_name as parse_notification_file_name,
        read_notifications as read_notifications,
        write_notifications as write_notifications,
    )
    from culver.pipeline.operator_work import MatchMeter as MatchMeter
    from culver.pipeline.operators import (
        access_point as access_point,
        events_for_slice as events_for_slice,
        exit_point as exit_point,
        match_events as match_events,
        payload_sizes as payload_sizes,
        route_events as route_events,
    )
    from culver.pipeline.partial_exchange import (
        Partial as Partial,
        clear_partials as clear_partials,
        put_partial as put_partial,
    )
    from culver.pipeline.range_processor import (
        DividedIndex as DividedIndex,
        warm_up_operators as warm_up_operators,
    )
    from culver.pipeline.site_files import SiteFiles as SiteFiles
    from culver.pipeline.spark.standalone_cluster import StandaloneCluster as StandaloneCluster
else:
    __getattr__ = lazy_names(__name__)
