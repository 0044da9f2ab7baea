"""The metrics of `/metrics`: `gateway_metrics` holds them, `pipeline_metrics` collects those of the pipeline."""
