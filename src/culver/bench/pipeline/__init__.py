"""`culver bench pipeline` measures the Spark engine from the publication log to notifications on disk.

pipeline_bench   one workload: registration, the bare matcher, a full log, idleness, latency
bare_matcher     the matcher alone, on all cores at once, for comparison
backlog          a log full of events, and how fast a site works through it
"""
