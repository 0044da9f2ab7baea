"""The inner loop of `kmeans`: registrations one after another, each to the nearest centre that has room."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from culver.matching.index.kernels import Integers, Reals, compiled

NO_COORDINATE = np.inf  # of a term that is bounded on neither side


class Clusters(NamedTuple):
    """What the loop changes in place; all but the sizes and clauses have the shape (slices, dimensions)."""

    sizes: Integers  # registrations of each slice
    clauses: Integers  # their clauses
    terms: Integers  # how many of those have a term in the dimension
    low: Integers  # the least and the greatest key that one of these terms allows
    high: Integers
    weight: Integers  # registrations that moved the centre
    centre: Reals


@compiled
def cluster(
    clusters: Clusters,
    share: float,
    slack: int,
    scale: Reals,
    registrations: int,
    clause_start: Integers,
    term_start: Integers,
    term_dimension: Integers,
    low: Integers,
    high: Integers,
    coordinate: Reals,
    chosen: Integers,
) -> None:
    """Choose the slice of each registration, and let the slice's centre and summary follow.

    Registration r has the clauses clause_start[r] .. clause_start[r + 1], clause c the terms term_start[c] ..
    term_start[c + 1], in dimensions of the clusters, -1 for those that are left out. A slice has room while it has at
    most `share` of all registrations, and `slack` more.
    """
    slices, dimensions = clusters.centre.shape
    sums = np.zeros(dimensions)
    counts = np.zeros(dimensions, np.int64)
    touched = np.empty(dimensions, np.int64)
    total = clusters.sizes.sum()
    for registration in range(registrations):
        begin, end = clause_start[registration], clause_start[registration + 1]
        first, last = term_start[begin], term_start[end]
        several = 0
        for term in range(first, last):
            d = term_dimension[term]
            if d >= 0 and coordinate[term] != NO_COORDINATE:
                if counts[d] == 0:
                    touched[several] = d
                    several += 1
                sums[d] += coordinate[term]
                counts[d] += 1
        total += 1
        room = share * total + slack
        best, nearest = -1, np.inf
        for s in range(slices):
            if clusters.sizes[s] >= room:
                continue
            distance = 0.0
            for i in range(several):
                d = touched[i]
                # Where a centre has nothing to say, it is as far as any registration is on the average.
                if clusters.weight[s, d] == 0:
                    distance += 1.0
                else:
                    away = (sums[d] / counts[d] - clusters.centre[s, d]) * scale[d]
                    distance += away * away
            if distance < nearest or (
                distance == nearest and clusters.sizes[s] < clusters.sizes[best]
            ):
                best, nearest = s, distance
        chosen[registration] = best
        clusters.sizes[best] += 1
        clusters.clauses[best] += end - begin
        for i in range(several):
            d = touched[i]
            clusters.weight[best, d] += 1
            clusters.centre[best, d] += (sums[d] / counts[d] - clusters.centre[best, d]) / clusters.weight[best, d]
            sums[d], counts[d] = 0.0, 0
        for term in range(first, last):
            d = term_dimension[term]
            if d >= 0:
                clusters.terms[best, d] += 1
                if low[term] <= high[term]:
                    clusters.low[best, d] = min(clusters.low[best, d], low[term])
                    clusters.high[best, d] = max(clusters.high[best, d], high[term])
