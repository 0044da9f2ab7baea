"""`culver bench pipeline`: the Spark engine from the publication log to notifications on disk.

run         one workload: registration, the bare matcher, a full log, idleness, latency
bare        the matcher alone, on all cores at once, for comparison
backlog     a log full of events, and how quickly a site works through it
"""
