"""Layer norm (Ba, Kiros & Hinton 2016, section 3), RMS norm (Zhang & Sennrich 2019, section 4).

In plain NumPy, for each row, with mean = 0 for the RMS norm:
    rstd = 1 / np.sqrt(((x - mean)**2).mean(-1) + eps);
    unit = (x - mean) * rstd;  y = unit * weight + bias;
and back, with d = g * weight, and without d.mean(-1) for the RMS norm:
    dx = rstd * (d - d.mean(-1) - unit * (d * unit).mean(-1));
    dweight = (g * unit).sum(0);  dbias = g.sum(0).
"""
import numpy as np
from numba import prange

from minigrad.kernels.compiling import dense, kernel, rows, serial, threads_for

CHUNKS = 16     # of rows; each sums dweight and dbias by itself, so that threads change nothing


def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float, centred: bool
         ) -> tuple[np.ndarray, np.ndarray]:
    """Normalise the last axis, (..., C) -> (..., C); also each row's mean and 1 / std, (R, 2)."""
    flat = rows(x)
    out, moments = np.empty(flat.shape, x.dtype), np.empty((len(flat), 2), x.dtype)
    norm_kernel(flat, dense(weight), dense(bias), out, moments, eps, centred, threads_for(x.size))
    return out.reshape(x.shape), moments


def norm_vjp(g: np.ndarray, x: np.ndarray, weight: np.ndarray, moments: np.ndarray, centred: bool
             ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients to x, weight and bias."""
    flat = rows(x)
    dx = np.empty(flat.shape, x.dtype)
    sums = np.zeros((2, CHUNKS, x.shape[-1]), x.dtype)
    norm_vjp_kernel(rows(g), flat, dense(weight), moments, dx, sums, centred, threads_for(x.size))
    dweight, dbias = sums.sum(axis=1)
    return dx.reshape(x.shape), dweight, dbias


@kernel("C2 C1 C1 C2 C2 double bool threads")
def norm_kernel(x, weight, bias, out, moments, eps, centred, threads):
    for r in prange(len(x)):
        moments[r, 0], moments[r, 1] = normalise(x[r], weight, bias, eps, centred, out[r])


@serial
def normalise(row, weight, bias, eps, centred, out):
    """Write the norm of a row to `out`; return its mean and 1 / std."""
    C = row.size
    real = row.dtype.type
    mean = real(0)
    if centred:
        for c in range(C):
            mean += row[c]
        mean /= real(C)
    square = real(0)
    for c in range(C):
        square += (row[c] - mean) * (row[c] - mean)
    rstd = real(1) / np.sqrt(square / real(C) + real(eps))
    for c in range(C):
        out[c] = (row[c] - mean) * rstd * weight[c] + bias[c]
    return mean, rstd


@kernel("C2 C2 C1 C2 C2 C3 bool threads")
def norm_vjp_kernel(g, x, weight, moments, dx, sums, centred, threads):
    R, C = x.shape
    real = x.dtype.type
    for chunk in prange(CHUNKS):
        dweight, dbias = sums[0, chunk], sums[1, chunk]
        for r in range(chunk * R // CHUNKS, (chunk + 1) * R // CHUNKS):
            mean, rstd = moments[r, 0], moments[r, 1]
            along_one, along_unit = real(0), real(0)
            for c in range(C):
                unit = (x[r, c] - mean) * rstd
                d = g[r, c] * weight[c]
                along_one += d
                along_unit += d * unit
                dweight[c] += g[r, c] * unit
                dbias[c] += g[r, c]
            along_one = along_one / real(C) if centred else real(0)
            along_unit /= real(C)
            for c in range(C):
                unit = (x[r, c] - mean) * rstd
                dx[r, c] = rstd * (g[r, c] * weight[c] - along_one - unit * along_unit)
