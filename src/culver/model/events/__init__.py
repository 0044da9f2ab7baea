"""Events, and batches of them as Arrow columns."""
