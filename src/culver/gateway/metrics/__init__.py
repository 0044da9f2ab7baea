"""What /metrics tells."""
