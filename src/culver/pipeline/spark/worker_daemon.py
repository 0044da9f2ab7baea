"""The process that forks Spark's Python workers, with everything a worker needs already loaded.

PySpark's own daemon imports nothing before it forks, so every new worker spends a second or more on imports. This one
imports everything once. PySpark collects garbage after every task; `gc.freeze` keeps that from walking, and so
copying, all that was imported.
"""

import gc
import os
import sys

# Set before NumPy is imported: a forked child must not inherit a thread pool whose threads do not exist there.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Spark puts an archive of itself without compiled modules first on the path, which takes a second more to import.
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
