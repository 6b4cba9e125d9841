"""What kernels are built with: compiling, threads, vectors, tiles, sums and memory."""
