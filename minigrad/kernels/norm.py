"""Layer norm (Ba, Kiros & Hinton 2016, section 3), and RMS norm, which does not centre (Zhang &
Sennrich 2019, section 4).
"""
import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (C1, C2, dense, kernel, rows, stands_in_for,
                                                 threads_for)
from minigrad.kernels.compiler.lanes import LANES, fma, load, spread, store, total
from minigrad.kernels.compiler.linking import inlined, serial
from minigrad.kernels.compiler.parallel import on_threads, share
from minigrad.kernels.compiler.simd import part
from minigrad.kernels.compiler.sums import row_sum, squares

CHUNKS = 16     # of rows; each has its own sums of dweight and dbias, so threads change nothing


@stands_in_for(formulas.norm)
def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float, centred: bool
         ) -> tuple[np.ndarray, np.ndarray]:
    flat = rows(x)
    out, moments = np.empty(flat.shape, x.dtype), np.empty((len(flat), 2), x.dtype)
    if len(flat):
        norm_kernel(flat, dense(weight), dense(bias), out, moments, eps, centred,
                    threads_for(x.size // 4))
    return out.reshape(x.shape), moments


@stands_in_for(formulas.norm_vjp)
def norm_vjp(g: np.ndarray, x: np.ndarray, weight: np.ndarray, moments: np.ndarray, centred: bool
             ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flat = rows(x)
    dx = np.empty(flat.shape, x.dtype)
    sums = np.zeros((2 * CHUNKS, x.shape[-1]), x.dtype)
    norm_vjp_kernel(rows(g), flat, dense(weight), moments, dx, sums, centred,
                    threads_for(x.size // 4))
    return dx.reshape(x.shape), sums[0], sums[CHUNKS]


@kernel
def norm_kernel(thread, threads, x: C2, weight: C1, bias: C1, out: C2, moments: C2, eps: float,
                centred: bool):
    """Take the moments of the next row before a row is scaled: the processor does both at once,
    where the scaling alone would wait for the sums."""
    R, C = x.shape
    mine = share(R, thread, threads)
    ahead = moments_of(part(x, mine.start * C, C), eps, centred)
    for r in mine:
        (mean, rstd), following = ahead, part(x, min(r + 1, R - 1) * C, C)
        ahead = moments_of(following, eps, centred)
        scale(part(x, r * C, C), weight, bias, mean, rstd, part(out, r * C, C))
        moments[r, 0], moments[r, 1] = mean, rstd


@inlined
def normalise(row, weight, bias, eps, centred, out):
    """Write the norm of a row to `out`."""
    mean, rstd = moments_of(row, eps, centred)
    scale(row, weight, bias, mean, rstd, out)


@inlined
def moments_of(row, eps, centred):
    """Return mean and 1 / std of a row."""
    real = row.dtype.type
    scale = real(1) / real(row.size)
    mean = row_sum(row) * scale if centred else real(0)
    return mean, real(1) / np.sqrt(fma(squares(row, mean), scale, real(eps)))


@inlined
def scale(row, weight, bias, mean, rstd, out):
    C = row.size
    weight, bias, out = part(weight, 0, C), part(bias, 0, C), part(out, 0, C)
    for c in range(0, C, LANES):
        unit = (load(row, c, 0) - mean) * rstd
        store(out, c, fma(unit, load(weight, c, 0), load(bias, c, 0)))


@kernel
def norm_vjp_kernel(g: C2, x: C2, weight: C1, moments: C2, dx: C2, sums: C2, centred: bool,
                    threads: int):
    on_threads(threads, normalise_chunks_vjp, g, x, weight, moments, dx, sums, centred)
    C = x.shape[1]
    for chunk in range(1, CHUNKS):
        for c in range(C):
            sums[0, c] += sums[chunk, c]
            sums[CHUNKS, c] += sums[CHUNKS + chunk, c]


@serial
def normalise_chunks_vjp(thread, threads, g, x, weight, moments, dx, sums, centred):
    R, C = x.shape
    for chunk in share(CHUNKS, thread, threads):
        dweight, dbias = part(sums, chunk * C, C), part(sums, (CHUNKS + chunk) * C, C)
        for r in share(R, chunk, CHUNKS):
            normalise_vjp(part(g, r * C, C), part(x, r * C, C), weight, moments[r, 0],
                          moments[r, 1], part(dx, r * C, C), dweight, dbias, centred)


@serial
def normalise_vjp(g, x, weight, mean, rstd, dx, dweight, dbias, centred):
    """Write the gradient of a row to dx, and add those of weight and bias to dweight and dbias."""
    C = x.size
    g, weight, dx = part(g, 0, C), part(weight, 0, C), part(dx, 0, C)
    dweight, dbias = part(dweight, 0, C), part(dbias, 0, C)
    real = x.dtype.type
    ones, units = spread(real(0)), spread(real(0))
    for c in range(0, C, LANES):
        g_c = load(g, c, 0)
        unit = (load(x, c, 0) - mean) * rstd
        d = g_c * load(weight, c, 0)
        ones += d
        units = fma(d, unit, units)
        store(dweight, c, fma(g_c, unit, load(dweight, c, 0)))
        store(dbias, c, load(dbias, c, 0) + g_c)
    along_one = total(ones) / real(C) if centred else real(0)
    along_unit = total(units) / real(C)
    for c in range(0, C, LANES):
        unit = (load(x, c, 0) - mean) * rstd
        d = fma(load(g, c, 0), load(weight, c, 0), -along_one)
        store(dx, c, fma(unit, -along_unit, d) * rstd)
