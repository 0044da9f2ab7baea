"""Groups of boxes as arrays of a segment: dimensions, chunks, axes and slots (see `segment_layout` and `chunks`)."""

from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching.index.compile.clause_table import ClauseTable, run_members, run_starts
from culver.matching.index.compile.key_lines import KeyLine
from culver.matching.index.intrinsics.vectors import LANES
from culver.matching.index.layout import chunks
from culver.matching.index.layout.box_order import split


class Boxes:
    """All groups of boxes, in the order of their buckets; group g has the clauses rows[begin[g] : begin[g + 1]]."""

    def __init__(self, table: ClauseTable, bucket: Integers, rows: Integers, begin: Integers) -> None:
        groups = len(begin) - 1
        self.bucket = bucket[rows[begin[:-1]]]
        self._table = table
        self._is_real = np.array(
            [line in (KeyLine.NUMBERS, KeyLine.REALS) for _, line in table.dimensions], np.bool_
        )
        self._slots: list[Integers] = []
        self._chunks: list[chunks.Chunk] = []
        self._need_counts: list[Integers] = []  # of slots
        self._needs: list[Integers] = []
        dimensions: list[Integers] = []
        chunk_counts: list[int] = []
        needy: list[bool] = []
        for g in range(groups):
            own = rows[begin[g] : begin[g + 1]]
            first, last = int(own[0]), int(own[-1])
            width = int(table.term_start[first + 1] - table.term_start[first])
            dimensions.append(table.term_dimension[table.term_start[first] :][:width])
            if last - first == len(own) - 1:
                group = table.term_bounds[table.term_start[first] : table.term_start[last + 1]]  # as they are
            else:
                group = table.term_bounds[table.term_start[own][:, None] + np.arange(width)]
            chunk_counts.append(self._add_group(own, group.reshape(len(own), 2 * width), dimensions[-1]))
            needy.append(bool(table.need_start[first + 1] > table.need_start[first]))
        self.needs = _concatenated(self._needs)
        every = self._chunks
        axes = [axis for chunk in every for axis in chunk.axes]
        edges = [(axis.edges, axis.cells.surplus()) for axis in axes]
        self.arrays: dict[str, NDArray[Any]] = {
            "group_dimension_start": _starts(dimensions),
            "group_dimension": _concatenated(dimensions),
            "group_chunks": run_starts(np.array(chunk_counts, np.int64)),
            "group_needy": np.array(needy, np.int32),
            "chunk_leaves": run_starts(np.array([chunk.leaves for chunk in every], np.int64)),
            "chunk_axes": _starts([chunk.axes for chunk in every]),
            "chunk_nodes": _starts([chunk.nodes for chunk in every]),
            "axis_low": np.array([axis.low for axis in axes], np.int64),
            "axis_high": np.array([axis.high for axis in axes], np.int64),
            "axis_edges": run_starts(np.array([len(own) + len(room) for own, room in edges], np.int64)),
            "axis_cells": _starts([axis.cells.before for axis in axes]),
            "axis_origin": np.array([axis.cells.origin for axis in axes], np.float64),
            "axis_scale": np.array([axis.cells.scale for axis in axes], np.float64),
            "axis_real": np.array([axis.cells.real for axis in axes], np.int32),
            "axis_steps": np.array([axis.cells.steps for axis in axes], np.int32),
            "edges": _concatenated([part for own in edges for part in own]),
            "cells": _concatenated([axis.cells.before for axis in axes]),
            "nodes": _concatenated([chunk.nodes for chunk in every]),
            "slot_registration": _concatenated(self._slots),
        }
        # Where no box has needs, there is no array of them.
        self.slot_needs = (
            run_starts(_concatenated(self._need_counts)) if any(needy) else np.empty(0, np.int64)
        )

    def _add_group(self, rows: Integers, bounds: Integers, dimensions: Integers) -> int:
        """Add the boxes of one group, and return the number of chunks that they make."""
        table = self._table
        sets = split(bounds, chunks.MOST_BOXES, LANES)
        for places in sets:
            chunk = chunks.build(bounds if len(sets) == 1 else bounds[places], self._is_real[dimensions])
            clauses = rows[places[chunk.order]]
            surplus = chunk.leaves * LANES - len(clauses)
            self._slots += [table.clause_registration[clauses], np.full(surplus, -1)]
            if len(table.needs):
                counts = table.need_start[clauses + 1] - table.need_start[clauses]
                self._need_counts += [counts, np.zeros(surplus, np.int64)]
                self._needs.append(table.needs[run_members(table.need_start, clauses)])
            self._chunks.append(chunk)
        return len(sets)


def _concatenated(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _starts(parts: Sequence[Sized]) -> Integers:
    return run_starts(np.array([len(part) for part in parts], np.int64))
