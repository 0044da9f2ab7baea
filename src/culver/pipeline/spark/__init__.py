"""The Spark engine: the operators in Structured Streaming micro-batches.

Two processes and their children:

    site (gateway, log, registry, delivery)         driver.py, a child of the site
      engine.py    starts and watches the driver      session.py   the Spark session and its settings
                                                      executors.py as many executors of a cluster as slices need
                   collects notification files        source.py    head file -> ranges -> matched in the workers
                        ^                                  |
                        |   datagrams: "a file is there"   v
                        +------------------------------ Python workers (daemon.py forks them, all loaded)

Spark moves ranges of the log and index versions, never events: workers map the log and the index, and write
notification files where they are made. This is the only package that imports pyspark.
"""
