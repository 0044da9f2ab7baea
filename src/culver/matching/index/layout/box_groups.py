"""Groups of boxes as arrays of a segment: dimensions, chunks, axes and slots (see `segment_layout` and `chunks`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from culver.jit import Integers
from culver.matching.index.compile.clause_table import ClauseTable, run_members, run_starts
from culver.matching.index.compile.key_lines import KeyLine
from culver.matching.index.intrinsics.vectors import LANES, WINDOW
from culver.matching.index.layout import chunks
from culver.matching.index.layout.box_order import split


class Boxes:
    """All groups of boxes. Group g has the clauses rows[begin[g] : begin[g + 1]], at least one. Groups follow the
    order of their buckets."""

    def __init__(self, table: ClauseTable, bucket: Integers, rows: Integers, begin: Integers) -> None:
        groups = len(begin) - 1
        self.bucket = bucket[rows[begin[:-1]]]
        self._table = table
        self._is_real = np.array(
            [line in (KeyLine.NUMBERS, KeyLine.REALS) for _, line in table.dimensions], np.bool_
        )
        # Enough memory if all bounds differ and are spread evenly.
        widths = table.term_start[rows[begin[:-1]] + 1] - table.term_start[rows[begin[:-1]]]
        boxes, axes = np.diff(begin), widths * (np.diff(begin) // (chunks.MOST_BOXES // 2) + 1)
        bounds = 2 * int(boxes @ widths)
        self._slots = _Joined(np.int32, len(rows) + LANES * groups)
        self._edges = _Joined(np.int64, bounds + WINDOW * int(axes.sum()))
        self._cells = _Joined(np.uint16, bounds + 2 * int(axes.sum()))
        self._nodes = _Joined(np.uint16, bounds + bounds // 32 + 4 * LANES * int(axes.sum()))
        self._chunks: list[tuple[int, int, int]] = []  # leaves, axes, entries of nodes
        self._axes: list[tuple[int, int, int, chunks.Cells]] = []  # low, high, edges with their surplus
        self._need_counts: list[Integers] = []  # of slots
        self._needs: list[Integers] = []
        dimensions: list[Integers] = []
        chunk_counts: list[int] = []
        needy: list[bool] = []
        for g in range(groups):
            own = rows[begin[g] : begin[g + 1]]
            first, last = int(own[0]), int(own[-1])
            width = int(widths[g])
            dimensions.append(table.term_dimension[table.term_start[first] :][:width])
            if last - first == len(own) - 1:
                group = table.term_bounds[table.term_start[first] : table.term_start[last + 1]]  # as they are
            else:
                group = table.term_bounds[table.term_start[own][:, None] + np.arange(width)]
            chunk_counts.append(self._add_group(own, group.reshape(len(own), 2 * width), dimensions[-1]))
            needy.append(bool(table.need_start[first + 1] > table.need_start[first]))
        self.needs = _concatenated(self._needs)
        cells = [cell for _, _, _, cell in self._axes]
        self.arrays: dict[str, NDArray[Any]] = {
            "group_dimension_start": run_starts(np.array([len(d) for d in dimensions], np.int64)),
            "group_dimension": _concatenated(dimensions),
            "group_chunks": run_starts(np.array(chunk_counts, np.int64)),
            "group_needy": np.array(needy, np.int32),
            "chunk_leaves": run_starts(np.array([leaves for leaves, _, _ in self._chunks], np.int64)),
            "chunk_axes": run_starts(np.array([count for _, count, _ in self._chunks], np.int64)),
            "chunk_nodes": run_starts(np.array([entries for _, _, entries in self._chunks], np.int64)),
            "axis_low": np.array([low for low, _, _, _ in self._axes], np.int64),
            "axis_high": np.array([high for _, high, _, _ in self._axes], np.int64),
            "axis_edges": run_starts(np.array([count for _, _, count, _ in self._axes], np.int64)),
            "axis_cells": run_starts(np.array([len(cell.before) for cell in cells], np.int64)),
            "axis_origin": np.array([cell.origin for cell in cells], np.float64),
            "axis_scale": np.array([cell.scale for cell in cells], np.float64),
            "axis_real": np.array([cell.real for cell in cells], np.int32),
            "axis_steps": np.array([cell.steps for cell in cells], np.int32),
            "edges": self._edges.array(),
            "cells": self._cells.array(),
            "nodes": self._nodes.array(),
            "slot_registration": self._slots.array(),
        }
        # Where no box has needs, there is no array of them.
        self.slot_needs = (
            run_starts(_concatenated(self._need_counts)) if any(needy) else np.empty(0, np.int64)
        )

    def _add_group(self, rows: Integers, bounds: Integers, dimensions: Integers) -> int:
        """Add the boxes of one group. Returns how many chunks they make."""
        table = self._table
        sets = split(bounds, chunks.MOST_BOXES, LANES)
        for places in sets:
            chunk = chunks.build(bounds if len(sets) == 1 else bounds[places], self._is_real[dimensions])
            clauses = rows[places[chunk.order]]
            surplus = chunk.leaves * LANES - len(clauses)
            self._slots.add(table.clause_registration[clauses])
            self._slots.add(np.full(surplus, -1, np.int32))
            if len(table.needs):
                counts = table.need_start[clauses + 1] - table.need_start[clauses]
                self._need_counts += [counts, np.zeros(surplus, np.int64)]
                self._needs.append(table.needs[run_members(table.need_start, clauses)])
            self._nodes.add(chunk.nodes)
            self._chunks.append((chunk.leaves, len(dimensions), len(chunk.nodes)))
            for low, high, edges, cells in zip(
                chunk.low.tolist(), chunk.high.tolist(), chunk.edges, chunk.cells, strict=True
            ):
                room = cells.surplus()
                self._edges.add(edges)
                self._edges.add(room)
                self._cells.add(cells.before)
                self._axes.append((low, high, len(edges) + len(room), cells))
        return len(sets)


class _Joined:
    """Joins arrays as they come, so that all of them are never in memory twice."""

    def __init__(self, dtype: Any, expected: int) -> None:
        self._array: NDArray[Any] = np.empty(expected, dtype)
        self._length = 0

    def add(self, part: NDArray[Any]) -> None:
        end = self._length + len(part)
        if end > len(self._array):
            larger = np.empty(2 * end, self._array.dtype)
            larger[: self._length] = self._array[: self._length]
            self._array = larger
        self._array[self._length : end] = part
        self._length = end

    def array(self) -> NDArray[Any]:
        """All of them. Memory behind the end that nobody has written to costs nothing."""
        joined = self._array[: self._length]
        return joined if 4 * self._length >= 3 * len(self._array) else joined.copy()


def _concatenated(parts: list[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
