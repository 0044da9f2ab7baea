"""The publication log: every acknowledged event, on disk, by offset."""
