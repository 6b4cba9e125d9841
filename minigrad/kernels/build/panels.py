"""Matrices in panels, as tiles read them: packed once by NumPy, for many products.

A matrix (K, P) becomes (panels, K, NR): panel i holds the columns from i NR on; zeros fill the last
one.  `matmul.pack_columns` does the same within a single product.
"""
import math

import numpy as np

from minigrad.kernels.build.tiles import TILE_BYTES


def pack(b: np.ndarray) -> np.ndarray:
    """Pack (..., K, P) -> (..., panels, K, NR), a copy."""
    *lead, K, P = b.shape
    packed = empty_panels(*lead, K, P, dtype=b.dtype)
    put(b, packed)
    return packed


def unpack(packed: np.ndarray, P: int) -> np.ndarray:
    """Unpack (..., panels, K, NR) -> (..., K, P), a copy: the inverse of `pack`."""
    *lead, panels, K, NR = packed.shape
    return packed.swapaxes(-3, -2).reshape(*lead, K, panels * NR)[..., :P]


def empty_panels(*shape: int, dtype: type) -> np.ndarray:
    """Return panels of zeros with room for a matrix (..., K, P)."""
    *lead, K, P = shape
    NR = TILE_BYTES // np.dtype(dtype).itemsize
    return np.zeros((*lead, math.ceil(P / NR), K, NR), dtype)


def put(b: np.ndarray, packed: np.ndarray) -> None:
    """Write (..., K, P) to the first K rows and P columns of a matrix in panels."""
    K, P = b.shape[-2:]
    NR = packed.shape[-1]
    for i in range(math.ceil(P / NR)):
        part = b[..., i * NR:(i + 1) * NR]
        packed[..., i, :K, :part.shape[-1]] = part
