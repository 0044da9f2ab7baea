"""Matching: which subscriptions an event satisfies."""


def warm_up() -> None:
    """Load all compiled kernels, so that the first event need not wait; see `index.warming`."""
    # Imported here because Numba takes most of a second, which not every user of this package needs.
    from culver.matching.index.warm_up import load_kernels

    load_kernels()
