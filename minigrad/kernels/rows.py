"""Softmax, cross-entropy and norms of rows; and of heads, which are turned in the same pass.

Rows: layer norm (Ba, Kiros & Hinton 2016, section 3), and RMS norm, which does not centre (Zhang &
Sennrich 2019, section 4).

Heads: rotary positions (Su et al. 2021, "RoFormer", section 3.4.2) turn channels in pairs, and back
by the opposite angle; heads are divided by their root mean square (Henry et al. 2020, "Query-Key
Normalization for Transformers", section 3), which turning does not change.
"""
import numpy as np

from minigrad import formulas
from minigrad.kernels.compiler.compiling import (C1, C2, C3, I1, IDS1, dense, flat, kernel, rows,
                                                 stands_in_for, threads_for)
from minigrad.kernels.compiler.lanes import (LANES, dot, fma, largest, load, part, row_of, row_sum,
                                             spread, squares, store, total)
from minigrad.kernels.compiler.linking import inlined, serial
from minigrad.kernels.compiler.parallel import count_up, share
from minigrad.kernels.compiler.vector_math import exp, log
from minigrad.kernels.matmul import copy_row

CHUNKS = 16     # of rows; each has its own sums of dweight and dbias, so threads change nothing
# Rows of a norm or a cross entropy that take each of its steps together.  A single row would wait
# for the end of one step before it begins the next.
AT_ONCE = 16


@stands_in_for(formulas.softmax)
def softmax(x):
    out = np.empty(x.shape, x.dtype)
    softmax_kernel(rows(x), rows(out), threads_for(x.size))
    return out


@kernel
def softmax_kernel(thread, threads, x: C2, out: C2):
    for r in share(len(x), thread, threads):
        row = row_of(x, r)
        softmax_row(row, largest(row), row_of(out, r))


@inlined
def softmax_row(x, top, y):
    """Write the softmax of a row, whose maximum is `top`, to y, which may be x; return
    log(sum(exp(x - top)))."""
    sum_ = exp_row(x, top, y)
    scale_row(y, x.dtype.type(1) / sum_)
    return log(sum_)


@inlined
def exp_row(x, top, y):
    """Write exp(x - top) to y, which may be x; return its sum."""
    y = part(y, 0, x.size)
    sums = spread(x.dtype.type(0))
    for i in range(0, x.size, LANES):
        e = exp(load(x, i, -np.inf) - top)
        store(y, i, e)
        sums += e
    return total(sums)


@inlined
def scale_row(y, scale):
    for i in range(y.size):     # a masked store is slow, and so is loading what it wrote
        y[i] *= scale


@stands_in_for(formulas.softmax_vjp)
def softmax_vjp(g, y):
    out = np.empty(y.shape, y.dtype)
    softmax_vjp_kernel(
        rows(g),
        rows(y),
        rows(out),
        threads_for(y.size // 4))
    return out


@kernel
def softmax_vjp_kernel(thread, threads, g: C2, y: C2, out: C2):
    R, C = y.shape
    for r in share(R, thread, threads):
        g_row = row_of(g, r)
        y_row = row_of(y, r)
        out_row = row_of(out, r)
        along = dot(g_row, y_row)
        for i in range(0, C, LANES):
            store(out_row, i, load(y_row, i, 0) * (load(g_row, i, 0) - along))


@stands_in_for(formulas.cross_entropy)
def cross_entropy(logits, targets, ignored):
    R, C = logits.shape
    losses, tops = np.empty((2, R), logits.dtype)
    slopes = np.empty((R, C), logits.dtype)
    left_out = np.zeros(2, np.int64)
    cross_entropy_kernel(dense(logits), targets, losses, tops, slopes, left_out, ignored,
                         threads_for(logits.size))
    ignored_targets, unknown_targets = left_out.tolist()
    if unknown_targets:
        raise IndexError("a target is no class")
    return losses, slopes, R - ignored_targets


@kernel
def cross_entropy_kernel(thread, threads, logits: C2, targets: IDS1, losses: C1, tops: C1,
                         slopes: C2, left_out: I1, ignored: int):
    """Also write the maximum of each row; and add to `left_out` how many targets are ignored, and
    how many are no class."""
    mine = share(len(logits), thread, threads)
    for first in range(mine.start, mine.stop, AT_ONCE):
        last = min(first + AT_ONCE, mine.stop)
        for r in range(first, last):
            tops[r] = largest(row_of(logits, r))
        for r in range(first, last):
            losses[r] = exp_row(row_of(logits, r), tops[r], row_of(slopes, r))
        for r in range(first, last):
            scale_row(row_of(slopes, r), losses.dtype.type(1) / losses[r])
        sums = part(losses, first, last - first)
        for i in range(sums.size):
            sums[i] = log(sums[i])
        for r in range(first, last):
            target = targets[r]
            if target == ignored:
                losses[r] = 0
                slopes[r] = 0
                count_up(left_out, 0)
            elif 0 <= target < logits.shape[1]:
                losses[r] -= logits[r, target] - tops[r]
                slopes[r, target] -= 1
            else:
                count_up(left_out, 1)


@stands_in_for(formulas.norm)
def norm(x, weight, bias, eps, centred):
    x_rows = rows(x)
    out = np.empty(x_rows.shape, x.dtype)
    mean = np.empty(len(x_rows), x.dtype)
    rstd = np.empty(len(x_rows), x.dtype)
    norm_kernel(
        x_rows,
        dense(weight),
        dense(bias),
        out,
        mean,
        rstd,
        eps,
        centred,
        threads_for(x.size // 4))
    of_each_row = *x.shape[:-1], 1
    return out.reshape(x.shape), mean.reshape(of_each_row), rstd.reshape(of_each_row)


@stands_in_for(formulas.norm_vjp)
def norm_vjp(g, x, weight, mean, rstd, centred):
    x_rows = rows(x)
    dx = np.empty(x_rows.shape, x.dtype)
    sums = np.zeros((CHUNKS, 2, x.shape[-1]), x.dtype)
    norm_vjp_kernel(
        rows(g),
        x_rows,
        dense(weight),
        flat(mean),
        flat(rstd),
        dx,
        sums,
        np.zeros(1, np.int64),
        centred,
        threads_for(x.size // 4))
    dweight, dbias = sums[0]
    return dx.reshape(x.shape), dweight, dbias


@kernel
def norm_kernel(thread, threads, x: C2, weight: C1, bias: C1, out: C2, mean: C1, rstd: C1,
                eps: float, centred: bool):
    mine = share(len(x), thread, threads)
    for first in range(mine.start, mine.stop, AT_ONCE):
        last = min(first + AT_ONCE, mine.stop)
        for r in range(first, last):
            mean[r] = row_mean(row_of(x, r)) if centred else x.dtype.type(0)
        if centred:
            for r in range(first, last):
                mean[r] = exact_mean(row_of(x, r), mean[r])
        for r in range(first, last):
            rstd[r] = inverse_rms(row_of(x, r), mean[r], eps)
        for r in range(first, last):
            scale_and_shift(
                row_of(x, r),
                mean[r],
                rstd[r],
                weight,
                bias,
                row_of(out, r))


@inlined
def normalise(row, weight, bias, eps, centred, out):
    """Write the norm of a row to `out`."""
    mean = row.dtype.type(0)
    if centred:
        mean = exact_mean(row, row_mean(row))
    rstd = inverse_rms(row, mean, eps)
    scale_and_shift(
        row,
        mean,
        rstd,
        weight,
        bias,
        out)


@inlined
def row_mean(row):
    real = row.dtype.type
    return row_sum(row, real(0)) * (real(1) / real(row.size))


@inlined
def exact_mean(row, mean):
    """Return a mean with what rounding has lost of it."""
    real = row.dtype.type
    mean += row_sum(row, mean) * (real(1) / real(row.size))
    if abs(mean) < np.inf:
        return mean
    return mean_of_large(row)


@inlined
def scale_and_shift(row, mean, rstd, weight, bias, out):
    """Write (row - mean) * rstd * weight + bias to `out`."""
    C = row.size
    weight = part(weight, 0, C)
    bias = part(bias, 0, C)
    out = part(out, 0, C)
    for c in range(0, C, LANES):
        unit = (load(row, c, 0) - mean) * rstd
        store(out, c, fma(unit, load(weight, c, 0), load(bias, c, 0)))


@serial
def mean_of_large(x):
    """Return the mean of numbers whose sum is beyond the largest float, or that are not finite."""
    mean = 0.0
    for i in range(x.size):
        mean += np.float64(x[i]) / x.size
    return x.dtype.type(mean)


@inlined
def inverse_rms(x, mean, eps):
    """Return 1 / sqrt(mean((x - mean)^2) + eps)."""
    return x.dtype.type(1 / np.sqrt(squares(x, mean) / x.size + eps))


@kernel
def norm_vjp_kernel(thread, threads, g: C2, x: C2, weight: C1, mean: C1, rstd: C1, dx: C2, sums: C3,
                    ended: I1, centred: bool):
    """Also write the gradients of weight and bias to sums[0].  `ended` counts the chunks."""
    R, C = x.shape
    for chunk in share(CHUNKS, thread, threads):
        dweight = part(sums, 2 * chunk * C, C)
        dbias = part(sums, (2 * chunk + 1) * C, C)
        for r in share(R, chunk, CHUNKS):
            normalise_vjp(
                row_of(g, r),
                row_of(x, r),
                weight,
                mean[r],
                rstd[r],
                row_of(dx, r),
                dweight,
                dbias,
                centred)
        if count_up(ended, 0) == CHUNKS - 1:    # no other thread writes any more
            for other in range(1, CHUNKS):
                add_row(part(sums, 0, 2 * C), part(sums, 2 * other * C, 2 * C))


@serial
def add_row(x, y):
    """Add y to x."""
    for i in range(0, x.size, LANES):
        store(x, i, load(x, i, 0) + load(y, i, 0))


@serial
def normalise_vjp(g, x, weight, mean, rstd, dx, dweight, dbias, centred):
    """Write the gradient of a row to dx, and add those of weight and bias to dweight and dbias."""
    C = x.size
    real = x.dtype.type
    g = part(g, 0, C)
    weight = part(weight, 0, C)
    dx = part(dx, 0, C)
    dweight = part(dweight, 0, C)
    dbias = part(dbias, 0, C)
    ones = units = spread(real(0))      # sums of the gradient of unit, and of its product with unit
    for c in range(0, C, LANES):
        g_c = load(g, c, 0)
        unit = (load(x, c, mean) - mean) * rstd     # 0 after the end, not infinite
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


@stands_in_for(formulas.rotate)
def rotate(x, cos, sin):
    y, _ = norm_heads(
        x,
        cos,
        sin,
        heads=0,
        D=1,
        eps=0.0)
    return y


@serial
def rotate_row(x, cos, sin, y):
    """Rotate as many pairs as there are angles; y may be x."""
    for i in range(cos.size):
        a = x[2 * i]
        b = x[2 * i + 1]
        y[2 * i] = fma(a, cos[i], -(b * sin[i]))
        y[2 * i + 1] = fma(b, cos[i], a * sin[i])


@stands_in_for(formulas.norm_heads)
def norm_heads(x, cos, sin, heads, D, eps):
    x_rows = rows(x)
    y = np.empty(x.shape, x.dtype)
    rstd = np.empty((len(x_rows), heads), x.dtype)
    norm_heads_kernel(
        x_rows,
        dense(cos),
        dense(sin),
        rows(y),
        rstd,
        D,
        eps,
        threads_for(x.size // 8))
    return y, rstd.reshape(*x.shape[:-1], heads, 1)


@stands_in_for(formulas.norm_heads_vjp)
def norm_heads_vjp(g, y, rstd, cos, sin, D):
    dx = np.empty(g.shape, g.dtype)
    threads = threads_for(g.size // 8)
    rstd = rows(rstd[..., 0])                                   # (R, heads)
    unrotated = np.empty((threads, rstd.shape[1] * D), g.dtype)
    norm_heads_vjp_kernel(
        rows(g),
        rows(y),
        rstd,
        dense(cos),
        dense(-sin),
        rows(dx),
        unrotated,
        threads)
    return dx


@kernel
def norm_heads_kernel(thread, threads, x: C2, cos: C2, sin: C2, y: C2, rstd: C2, D: int,
                      eps: float):
    R, heads = rstd.shape
    T, pairs = cos.shape
    turned = 2 * pairs          # channels
    for row in share(R, thread, threads):
        t = row % T
        rotate_row(
            x[row],
            cos[t],
            sin[t],
            y[row])
        copy_row(x[row, turned:], y[row, turned:])
        for h in range(heads):
            rstd[row, h] = norm_head(part(y, row * y.shape[1] + h * D, D), eps)


@serial
def norm_head(x, eps):
    """Divide a head by its root mean square; return 1 / rms."""
    rstd = inverse_rms(x, x.dtype.type(0), eps)
    for d in range(0, x.size, LANES):
        store(x, d, load(x, d, 0) * rstd)
    return rstd


@kernel
def norm_heads_vjp_kernel(thread, threads, g: C2, y: C2, rstd: C2, cos: C2, back: C2, dx: C2,
                          unrotated: C2):
    """`unrotated` is a gradient before it is rotated back, which in place would be a loop without
    vectors."""
    R, heads = rstd.shape
    T, pairs = cos.shape
    turned = 2 * pairs          # channels
    unrotated = unrotated[thread]
    D = unrotated.size // max(1, heads)
    for row in share(R, thread, threads):
        t = row % T
        for h in range(heads):
            at = row * g.shape[1] + h * D
            norm_head_vjp(
                part(g, at, D),
                part(y, at, D),
                rstd[row, h],
                part(unrotated, h * D, D))
        rotate_row(
            unrotated,
            cos[t],
            back[t],
            dx[row])
        copy_row(unrotated[turned:], dx[row, turned:])
        copy_row(g[row, heads * D:], dx[row, heads * D:])


@serial
def norm_head_vjp(g, y, rstd, dx):
    D = g.size
    y = part(y, 0, D)
    dx = part(dx, 0, D)
    along = dot(g, y) / g.dtype.type(D)
    for d in range(0, D, LANES):
        store(dx, d, fma(load(y, d, 0), -along, load(g, d, 0)) * rstd)
