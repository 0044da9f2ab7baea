"""The compiled index: immutable segments in files, versions that name them, and kernels that match."""
