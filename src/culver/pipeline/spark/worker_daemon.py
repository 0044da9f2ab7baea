"""The process that forks Spark's Python workers, with everything a worker needs already loaded.

PySpark's own daemon imports nothing before it forks, so that every new worker spends a second or more on
imports. Here they are done once; `gc.freeze` keeps the collection that PySpark runs after every task from
walking, and copying, all of it.
"""

import gc
import os
import sys

# Set before NumPy is imported: a forked child must not inherit a pool of threads that are not there.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Spark puts an archive of itself first on the path, without compiled modules: a second slower to import.
sys.path[:] = [entry for entry in sys.path if not entry.endswith(("pyspark.zip", "-src.zip"))]


def main() -> None:
    import pyspark.daemon
    import pyspark.sql.streaming.python_streaming_source_runner
    import pyspark.sql.worker.plan_data_source_read
    import pyspark.worker

    import culver.pipeline.spark.log_source  # noqa: F401 - loaded before the fork, as all of these
    from culver.pipeline.range_processor import warm_up_operators

    warm_up_operators()
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()


if __name__ == "__main__":
    main()
