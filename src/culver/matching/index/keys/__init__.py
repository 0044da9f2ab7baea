"""The events of a batch become 64-bit keys."""
