"""Intrinsics: what kernels need of the processor and Numba does not offer, as LLVM code."""
