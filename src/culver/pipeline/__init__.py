"""The pipeline: access point, matching and exit point, run by the inline or the Spark engine."""
