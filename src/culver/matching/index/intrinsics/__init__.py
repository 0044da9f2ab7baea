"""Intrinsics: what kernels need of the processor and Numba does not offer, as LLVM code.

vectors       comparisons, packing and moving of many entries at once
raw_memory    arrays and numbers at an address
"""
