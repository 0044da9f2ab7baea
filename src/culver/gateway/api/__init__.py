"""The messages of the API: what is read, what is written, and its description."""
