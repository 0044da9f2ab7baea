"""The inner loop of `kmeans`: registrations one after another, each to the nearest centre that has room."""

from typing import NamedTuple

import numpy as np

from culver.jit import Integers, Reals, compiled

_CROWDED = 4.0  # what it counts that a slice is full
_LOSS = 100.0  # what it counts, in squared deviations, that a slice would lose its bounds in a dimension


class Clusters(NamedTuple):
    """What the loop changes in place; all but the sizes and clauses have the shape (slices, dimensions)."""

    sizes: Integers  # registrations of each slice
    clauses: Integers  # their clauses
    terms: Integers  # how many of those have a term in the dimension
    low: Integers  # the least and the greatest key that one of these terms allows
    high: Integers
    weight: Integers  # registrations that moved the centre
    centre: Reals


class Terms(NamedTuple):
    """Registration r has the clauses clause_start[r] to clause_start[r + 1], clause c the terms term_start[c] to
    term_start[c + 1]. Dimensions are those of the clusters, -1 for those that are left out."""

    clause_start: Integers
    term_start: Integers
    dimension: Integers
    low: Integers
    high: Integers
    coordinate: Reals
    pull: Reals  # how much the coordinate counts; 0: there is none


@compiled
def cluster(
    clusters: Clusters,
    terms: Terms,
    registrations: int,
    scale: Reals,
    share: float,
    slack: int,
    chosen: Integers,
) -> None:
    """Choose the slice of each registration, and let the slice's centre and summary follow.

    A slice has room up to `share` times its even part, and `slack` more. `scale` turns coordinates
    into deviations.
    """
    slices, dimensions = clusters.centre.shape
    sums = np.zeros(dimensions)
    pulls = np.zeros(dimensions)
    present = np.zeros(dimensions, np.int64)
    total = clusters.sizes.sum()
    for registration in range(registrations):
        begin, end = terms.clause_start[registration], terms.clause_start[registration + 1]
        first, last = terms.term_start[begin], terms.term_start[end]
        sums[:], pulls[:], present[:] = 0.0, 0.0, 0
        for term in range(first, last):
            d = terms.dimension[term]
            if d >= 0:
                present[d] += 1
                pulls[d] += terms.pull[term]
                sums[d] += terms.pull[term] * terms.coordinate[term]
        total += 1
        even = total / slices
        room = share * even + slack
        best, nearest = -1, np.inf
        for s in range(slices):
            if clusters.sizes[s] >= room:
                continue
            # Already above its even share, a slice leaves what might as well go elsewhere.
            distance = max(0.0, clusters.sizes[s] - even) / (room - even) * _CROWDED
            for d in range(dimensions):
                if pulls[d] > 0.0:
                    # Where a centre has nothing to say, it is as far as a registration is on the average.
                    away = 1.0
                    if clusters.weight[s, d] > 0:
                        away = (sums[d] / pulls[d] - clusters.centre[s, d]) * scale[d]
                    distance += away * away * pulls[d] / present[d]
                if present[d] < end - begin and clusters.terms[s, d] == clusters.clauses[s]:
                    distance += _LOSS
            # The first is taken however far it is: a distance may be beyond the reals.
            if (
                best < 0
                or distance < nearest
                or (distance == nearest and clusters.sizes[s] < clusters.sizes[best])
            ):
                best, nearest = s, distance
        chosen[registration] = best
        clusters.sizes[best] += 1
        clusters.clauses[best] += end - begin
        for d in range(dimensions):
            if pulls[d] > 0.0:
                clusters.weight[best, d] += 1
                clusters.centre[best, d] += (sums[d] / pulls[d] - clusters.centre[best, d]) / clusters.weight[
                    best, d
                ]
        for term in range(first, last):
            d = terms.dimension[term]
            if d >= 0:
                clusters.terms[best, d] += 1
                if terms.low[term] <= terms.high[term]:
                    clusters.low[best, d] = min(clusters.low[best, d], terms.low[term])
                    clusters.high[best, d] = max(clusters.high[best, d], terms.high[term])
