"""What each set of a placement in layers is, for people."""

from typing import NamedTuple

from culver.placement.mpartition import MPartition


class SetLabel(NamedTuple):
    """All None: the rest."""

    layer: int | None = None
    dimension: int | None = None
    backup_of: int | None = None


def label_sets(placement: MPartition) -> list[SetLabel]:
    """By the number of the set."""
    labels = [SetLabel()]
    for number, layer in enumerate(placement.layers):
        for dimension in range(len(layer.divisions)):
            labels += [SetLabel(number, dimension)] * placement.slices
        if layer.has_backups:
            labels += [SetLabel(number, backup_of=own) for own in range(placement.slices)]
    return labels
