"""Vector instructions: 64 comparisons at once, packing and moving.

Numba compiles loops well, but not into a mask of 64 answers. These functions give LLVM the vector code itself, in
generic form: a processor with AVX-512 takes two comparisons for each bound of a node, and for others LLVM does what
it can. They can only be called in compiled functions.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from culver.jit import Integers, Shorts, compiled

LANES = 64
WINDOW = 16
MOVED = 32
# The bits of a vector that is packed, or moved.
_EMIT_BITS = 512
# Masks in a vector.
_MASKS = 8
_ALL = 2**64 - 1

_BIT, _SHORT, _WORD, _LONG = (ir.IntType(bits) for bits in (1, 16, 32, 64))


def _load(builder: Any, data: Any, at: Any, vector: Any) -> Any:
    """A vector from an address that is aligned like one element."""
    address = builder.bitcast(builder.gep(data, [at]), vector.as_pointer())
    loaded = builder.load(address)
    loaded.align = vector.element.width // 8
    return loaded


def _repeat(builder: Any, value: Any, vector: Any) -> Any:
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_WORD, 0))
    zeros = ir.Constant(ir.VectorType(_WORD, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, nothing, zeros)


def _within(context: Any, array: Any, at: Any, rank: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, rank = arguments
        data = context.make_array(signature.args[0])(context, builder, array).data
        vector = ir.VectorType(_SHORT, LANES)
        lows = _load(builder, data, at, vector)
        spans = _load(builder, data, builder.add(at, ir.Constant(_LONG, LANES)), vector)
        # One unsigned comparison tests both bounds: below the low one, the difference wraps around.
        distance = builder.sub(_repeat(builder, rank, vector), lows)
        return builder.bitcast(builder.icmp_unsigned("<=", distance, spans), _LONG)

    return types.uint64(array, types.int64, types.uint16), generate


def _store(builder: Any, vector: Any, data: Any, at: Any) -> None:
    address = builder.bitcast(builder.gep(data, [at]), vector.type.as_pointer())
    stored = builder.store(vector, address)
    stored.align = vector.type.element.width // 8


def _emit(context: Any, mask: Any, source: Any, at: Any, target: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask, source, at, target, count = arguments
        read = context.make_array(signature.args[1])(context, builder, source).data
        written = context.make_array(signature.args[3])(context, builder, target).data
        element = read.type.pointee
        lanes = _EMIT_BITS // element.width
        vector = ir.VectorType(element, lanes)
        bits = ir.VectorType(_BIT, lanes)
        compress = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector, bits, vector]),
            f"llvm.experimental.vector.compress.v{lanes}i{element.width}",
        )
        for lane in range(0, LANES, lanes):
            shifted = builder.lshr(mask, ir.Constant(_LONG, lane))
            part = builder.trunc(shifted, ir.IntType(lanes))
            values = _load(builder, read, builder.add(at, ir.Constant(_LONG, lane)), vector)
            chosen = builder.bitcast(part, bits)
            packed = builder.call(compress, [values, chosen, ir.Constant(vector, ir.Undefined)])
            _store(builder, packed, written, count)
            count = builder.add(count, builder.zext(builder.ctpop(part), _LONG))
        return count

    return types.int64(types.uint64, source, types.int64, target, types.int64), generate


def _transpose(context: Any, masks: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        vector = ir.VectorType(_LONG, _MASKS)
        places = [builder.add(arguments[1], ir.Constant(_LONG, i)) for i in range(0, LANES, _MASKS)]
        rows = [_load(builder, data, place, vector) for place in places]
        # Quarters of ever smaller squares swap: first those whose masks are in different vectors ...
        for size in (32, 16, 8):
            lower = ir.Constant(vector, [_lower_of(size)] * _MASKS)
            by = ir.Constant(vector, [size] * _MASKS)
            for i in range(len(rows)):
                if (other := i + size // _MASKS) & (size // _MASKS) and i < other:
                    above, below = rows[i], rows[other]
                    changed = builder.and_(builder.xor(builder.lshr(above, by), below), lower)
                    rows[i] = builder.xor(above, builder.shl(changed, by))
                    rows[other] = builder.xor(below, changed)
        # ... then those whose masks are in one.
        rotate = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fshl.v{_MASKS}i64"
        )
        for size in (4, 2, 1):
            lower = _lower_of(size)
            kept = [lower if i & size == 0 else lower ^ _ALL for i in range(_MASKS)]
            turned = ir.Constant(vector, [size if i & size == 0 else LANES - size for i in range(_MASKS)])
            partner = ir.Constant(ir.VectorType(_WORD, _MASKS), [i ^ size for i in range(_MASKS)])
            keep, take = ir.Constant(vector, kept), ir.Constant(vector, [each ^ _ALL for each in kept])
            for i, row in enumerate(rows):
                other = builder.shuffle_vector(row, row, partner)
                other = builder.call(rotate, [other, other, turned])
                rows[i] = builder.or_(builder.and_(row, keep), builder.and_(other, take))
        for place, row in zip(places, rows, strict=True):
            _store(builder, row, data, place)
        return context.get_dummy_value()

    return types.none(masks, types.int64), generate


def _lower_of(size: int) -> int:
    """A mask of 64 bits that has the lower one of every two runs of so many bits."""
    return sum(((1 << size) - 1) << begin for begin in range(0, LANES, 2 * size))


def _ones(context: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _copy(context: Any, source: Any, at: Any, length: Any, target: Any, to: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, at, length, target, to = arguments
        read = context.make_array(signature.args[0])(context, builder, source).data
        written = context.make_array(signature.args[3])(context, builder, target).data
        vector = ir.VectorType(_WORD, WINDOW)
        bits = ir.VectorType(_BIT, WINDOW)
        places = ir.Constant(ir.VectorType(_LONG, WINDOW), list(range(WINDOW)))
        inside = builder.icmp_signed("<", places, _repeat(builder, length, places.type))
        load = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector.as_pointer(), _WORD, bits, vector]),
            f"llvm.masked.load.v{WINDOW}i32.p0",
        )
        address = builder.bitcast(builder.gep(read, [at]), vector.as_pointer())
        aligned = ir.Constant(_WORD, _WORD.width // 8)
        loaded = builder.call(load, [address, aligned, inside, ir.Constant(vector, None)])
        _store(builder, loaded, written, to)
        return context.get_dummy_value()

    return types.none(source, types.int64, types.int64, target, types.int64), generate


def _move(context: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, at, target, to = arguments
        read = context.make_array(signature.args[0])(context, builder, source).data
        written = context.make_array(signature.args[2])(context, builder, target).data
        element = read.type.pointee
        vector = ir.VectorType(element, _EMIT_BITS // element.width)
        _store(builder, _load(builder, read, at, vector), written, to)
        return context.get_dummy_value()

    return types.none(source, types.int64, target, types.int64), generate


def _count_up_to(context: Any, array: Any, at: Any, key: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, key = arguments
        data = context.make_array(signature.args[0])(context, builder, array).data
        vector = ir.VectorType(_LONG, WINDOW)
        below = builder.icmp_signed("<=", _load(builder, data, at, vector), _repeat(builder, key, vector))
        return builder.zext(builder.ctpop(builder.bitcast(below, ir.IntType(WINDOW))), _LONG)

    return types.int64(array, types.int64, types.int64), generate


def _lowest(context: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(_BIT, 1))

    return types.int64(types.uint64), generate


def _prefetch(context: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        ask = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [address.type, _WORD, _WORD, _WORD]),
            "llvm.prefetch.p0",
        )
        reading, closely, data_cache = (ir.Constant(_WORD, number) for number in (0, 3, 1))
        builder.call(ask, [address, reading, closely, data_cache])
        return context.get_dummy_value()

    return types.none(array, types.int64), generate


if TYPE_CHECKING:

    def prefetch(array: NDArray[Any], at: int) -> None:
        """Prefetch array[at] into the cache. Any place will do, even one behind the end."""

    def within(nodes: NDArray[np.uint16], at: int, rank: np.uint16) -> np.uint64:
        """Bit i says whether low <= rank <= low + span, where low is nodes[at + i] and span is nodes[at + 64 + i]."""

    def emit(mask: np.uint64, source: NDArray[Any], at: int, target: NDArray[Any], count: int) -> int:
        """Append source[at + i] to target[count:] for each bit i of the mask, and return the new count. May write
        nonsense behind it, up to 64 places in all: leave that much room."""

    def transpose(masks: NDArray[np.uint64], at: int) -> None:
        """Transpose the 64 masks from masks[at] on: bit j of mask i and bit i of mask j swap."""

    def ones(mask: np.uint64) -> int:
        """The number of bits that are set."""

    def copy(source: Shorts, at: int, length: int, target: Shorts, to: int) -> None:
        """Copy source[at : at + length], but no more than 16, to target[to:]. Writes nonsense behind it, up to 16
        places in all: leave that much room."""

    def move(source: NDArray[np.uint16], at: int, target: NDArray[np.uint16], to: int) -> None:
        """Copy 32 entries; both arrays must have that many."""

    def count_up_to(keys: Integers, at: int, key: int) -> int:
        """Count those of the 16 keys from keys[at] on that are at most `key`."""

    def lowest(mask: np.uint64) -> int:
        """The place of the lowest bit; the mask must have one."""

else:
    within, emit, lowest = map(intrinsic, (_within, _emit, _lowest))
    copy, count_up_to, prefetch, transpose, ones, move = map(
        intrinsic, (_copy, _count_up_to, _prefetch, _transpose, _ones, _move)
    )


@compiled
def real_of(key: int) -> float:
    """The real that a key stands for, see `key_lines`."""
    return float(np.int64(key ^ ((key >> 63) & 0x7FFF_FFFF_FFFF_FFFF)).view(np.float64))
