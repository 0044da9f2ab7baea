"""What kernels ask of the processor directly: vector instructions, and memory by its address."""
