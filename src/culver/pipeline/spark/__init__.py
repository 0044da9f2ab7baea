"""The Spark engine: runs the operators in Structured Streaming micro-batches.

Two processes and their children:

    site (gateway, log, registry, delivery)       driver, a child of the site
      spark_engine  starts and watches the driver,  java             starts the virtual machine
                    collects notification files     log_source       the session and the query on it,
                        ^                                            head file -> ranges -> matched in the workers
                        |                                |
                        |   signals: "a file is there"   v
                        +---------------------------- Python workers, which worker_daemon forks with all loaded

In reading order: spark_engine, driver, log_source; then what each needs:

    signals           datagrams to the site, and a watch on the head file
    checkpoint        whether a query can go on from Spark's checkpoint
    session_settings  Spark's settings, with reasons, and addresses of masters
    java              the command line of a Spark process, and the driver's virtual machine
    class_archive     an archive of loaded classes, which halves the machine's start
    worker_daemon     forks Python workers that have loaded everything
    standalone_cluster  a Master and Workers as processes of this machine

Spark moves ranges of the log and index versions, never events: workers map the log and the index, and write
notification files where they are made. This is the only package that imports pyspark.
"""
