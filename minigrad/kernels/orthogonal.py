"""Matrices near to those with orthonormal rows or columns, of many matrices at once.

In plain NumPy, for x = U S V^T, each of a batch:
    z = x / |x|;  steps times:  z = a z + (b A + c A A) z  with A = z z^T
which keeps U and V, and brings singular values to between 0.68 and 1.21: in five steps all that are
0.0015 or more of |x|, in three those from 0.018 on (Jordan et al. 2024, "Muon: An optimizer for
hidden layers in neural networks", with its coefficients a, b, c).

How it runs: a + b A + c A^2 = c (A + b/2c)^2 + a - b^2/4c, and for c^(1/4) z in place of z the
factor c is 1; then a step is products, and numbers that are added to a diagonal.  What is symmetric
is computed below the diagonal alone.  Where rows are much longer than columns, the steps are taken
on A, which one with the polynomial P takes to P A P; all P together multiply z once, at the end.
Each matrix of a product is one thread's, so that the result does not depend on the threads.
"""
import math

import numpy as np
from numba import prange

from minigrad.kernels.compiling import kernel, serial, threads_for, writable
from minigrad.kernels.matmul import KC, multiply, pack_columns
from minigrad.kernels.tiles import MR, TILE_BYTES

A, B, C = 3.4445, -4.7750, 2.0315
SCALE = C ** 0.25
SHIFT = B / (2 * math.sqrt(C))
REST = A - B * B / (4 * C)
TINY = 1e-7         # added to the norm
STRIP = 4 * MR      # rows of a product at a time; whole tiles, and columns of whole vectors
SQUARE = 16         # rows and columns that are mirrored at a time, while both are in the cache


def orthogonalize(x: np.ndarray, steps: int = 5) -> np.ndarray:
    """About U V^T for each x = U S V^T, (N, M, K) -> (N, M, K)."""
    N, M, K = x.shape
    if M > K:
        return orthogonalize(x.swapaxes(1, 2), steps).swapaxes(1, 2)
    norm = np.sqrt(np.einsum("nij,nij->n", x, x))
    z = np.multiply(x, (SCALE / (norm + TINY))[:, None, None], order="C")
    if x.size:
        # From there on, steps on A take fewer multiplications.
        z = (steps_on_rows if 2 * K <= 3 * M else steps_on_gram)(z, steps)
    z /= SCALE
    return z


def steps_on_rows(z: np.ndarray, steps: int) -> np.ndarray:
    """The steps as they stand, (N, M, K) -> (N, M, K)."""
    for _ in range(steps):
        z = product(polynomial(product(z, z.swapaxes(1, 2), symmetric=True)), z)
    return z


def steps_on_gram(z: np.ndarray, steps: int) -> np.ndarray:
    """The same by z z^T, (N, M, K) -> (N, M, K)."""
    gram, all_P = product(z, z.swapaxes(1, 2), symmetric=True), None            # (N, M, M)
    for step in range(steps):
        P = polynomial(gram.copy())
        all_P = P if all_P is None else product(P, all_P, symmetric=True)
        if step < steps - 1:
            gram = product(product(P, gram, symmetric=True), P, symmetric=True)
    return product(all_P, z)


def polynomial(gram: np.ndarray) -> np.ndarray:
    """(gram + SHIFT)^2 + REST, (N, M, M) -> (N, M, M); gram is written over."""
    np.einsum("nii->ni", gram)[...] += SHIFT
    P = product(gram, gram, symmetric=True)
    np.einsum("nii->ni", P)[...] += REST
    return P


def product(a: np.ndarray, b: np.ndarray, symmetric: bool = False) -> np.ndarray:
    """(N, M, K) @ (N, K, P) -> (N, M, P), of which half is computed where it is symmetric."""
    c = np.empty((*a.shape[:2], b.shape[2]), a.dtype)
    product_kernel(writable(a), writable(b), c, symmetric, threads_for(c.size * a.shape[2] // 16))
    return c


@kernel("A3 A3 C3 bool threads")
def product_kernel(a, b, c, symmetric, threads):
    for n in prange(len(c)):
        product_of_one(a[n], b[n], c[n], symmetric)


@serial
def product_of_one(a, b, c, symmetric):
    (M, K), P = a.shape, c.shape[1]
    NR, depth = TILE_BYTES // c.itemsize, min(K, KC)
    packed = np.empty(((P + NR - 1) // NR, depth, NR), c.dtype)
    for start in range(0, K, depth):
        end = min(K, start + depth)
        pack_columns(b[start:end], packed)
        for top in range(0, M, STRIP):
            bottom = min(M, top + STRIP)
            multiply(a[top:bottom, start:end], packed,
                     c[top:bottom, :bottom if symmetric else P], start > 0)
    for top in range(0, M if symmetric else 0, SQUARE):
        for left in range(0, top + 1, SQUARE):
            for j in range(left, min(M, left + SQUARE)):
                for i in range(max(top, j), min(M, top + SQUARE)):
                    c[j, i] = c[i, j]
