"""The filters that a subscription may be matched by, one module each."""
