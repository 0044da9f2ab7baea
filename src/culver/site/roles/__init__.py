"""The roles that a running site implements itself; the others are parts of it, or forwarded."""
