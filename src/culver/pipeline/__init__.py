"""The pipeline: access point, matching and exit point, run by the inline or the Spark engine."""

from typing import TYPE_CHECKING

from culver.lazy import lazy_names

if TYPE_CHECKING:
    from culver.pipeline.batch_plan import Plan as Plan
    from culver.pipeline.divided_index import DividedIndex as DividedIndex
    from culver.pipeline.engine import Engine as Engine, Progress as Progress
    from culver.pipeline.head import Head as Head, HeadFile as HeadFile, HeadTracker as HeadTracker
    from culver.pipeline.inline_engine import InlineEngine as InlineEngine
    from culver.pipeline.notifications import (
        Notifications as Notifications,
        NotificationSink as NotificationSink,
        aligned_rows as aligned_rows,
        file_name as file_name,
        parse_file_name as parse_file_name,
    )
    from culver.pipeline.observation import (
        BATCH_SECONDS as BATCH_SECONDS,
        BatchTotals as BatchTotals,
        EngineObservation as EngineObservation,
        FileTotals as FileTotals,
        GatewayInfo as GatewayInfo,
        IndexScheme as IndexScheme,
        IndexSlice as IndexSlice,
        PlacementInfo as PlacementInfo,
        Queues as Queues,
        SchemeTotals as SchemeTotals,
        SiteObservation as SiteObservation,
        SliceTotals as SliceTotals,
    )
    from culver.pipeline.operator_work import Meter as Meter
    from culver.pipeline.partial_file import Partial as Partial
    from culver.pipeline.set_loads import LoadReport as LoadReport
    from culver.pipeline.site_files import SiteFiles as SiteFiles
    from culver.pipeline.spark.cluster.masters import parallelism as parallelism
    from culver.pipeline.spark.cluster.standalone_cluster import StandaloneCluster as StandaloneCluster
    from culver.pipeline.spark.spark_engine import SparkEngine as SparkEngine
else:
    __getattr__ = lazy_names(__name__)
