"""Kernels against their formulas, where no op shows it; and what is true of kernels alone.

What ops show is in test_formulas.py.
"""
import itertools
import math
from contextlib import nullcontext
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from minigrad import compiled, formulas, random
from minigrad.gradients import Rows
from minigrad.formulas import ACTIVATIONS, AttentionSettings, DropoutSettings
from minigrad.kernels import attention, matmul
from minigrad.kernels.compiler.tiles import SIZES
from minigrad.kernels.embedding import rows_at
from tests import plain
from tests.benchmarks.tiles import PROCESSORS
from tests.checking import assert_close
from tests.kit import both_types, compiled_only, normal, refusal


by_both = pytest.mark.parametrize("on", [formulas, plain])


@compiled_only       # NumPy's own library does not promise it
@pytest.mark.parametrize("K", [100, 500, 900])
def test_a_row_of_a_matmul_does_not_depend_on_where_it_lies(K):
    a = normal(1, K, dtype=np.float32)
    b = normal(K, 70, seed=1, dtype=np.float32)
    product = formulas.matmul(np.repeat(a, 1001, axis=0), b)
    assert (product == product[0]).all()


def test_linear_adds_a_bias_once_to_a_product_that_is_packed_in_several_rounds():
    """Also where its columns end within a vector, and blocks of rows take turns."""
    x = np.repeat(np.arange(200, dtype=np.float32)[:, None], 1200, axis=1)
    weight = np.ones((601, 1200), np.float32)
    y = formulas.linear(x, weight, np.ones(601, np.float32))
    assert (y == 1200 * x[:, :1] + 1).all()


class Counting(np.ndarray):
    """An array that counts the elements that are written one by one."""
    written = 0

    def __setitem__(self, at, value):
        self.written += 1
        super().__setitem__(at, value)


def along(x, at, count):
    """`count` numbers of memory, from place `at` of an array on."""
    return np.lib.stride_tricks.as_strided(x, (at + count,), (x.itemsize,))[at:].view(np.ndarray)


@pytest.mark.parametrize("D", [8, 16, 24, 32, 48, 64, 80, 128])
@pytest.mark.parametrize("name", PROCESSORS)
def test_packing_heads_copies_at_most_a_vector_at_each_edge_one_by_one(monkeypatch, name, D):
    size = SIZES[PROCESSORS[name][1]]
    lanes = size.vector_bytes // 4
    NR = lanes * size.NV

    def copy_row(source, target):
        target[:source.size] = source

    def copy_tile_row(source, source_at, target, target_at):
        along(target, target_at, NR)[:] = along(source, source_at, NR)

    def transpose_square(source, source_at, source_row, target, target_at, target_row):
        for i in range(lanes):
            along(target, target_at + i * target_row, lanes)[:] = [
                along(source, source_at + j * source_row + i, 1)[0] for j in range(lanes)]

    for attribute, value in (("NV", size.NV), ("TILE_BYTES", size.vector_bytes * size.NV),
                             ("part", along), ("copy_row", copy_row),
                             ("copy_tile_row", copy_tile_row),
                             ("transpose_square", transpose_square)):
        monkeypatch.setattr(matmul, attribute, value)
    pack_columns = getattr(matmul.pack_columns, "py_func", matmul.pack_columns)
    heads = normal(40, 3, D, dtype=np.float32)
    for queries in (40, 32, 5):
        head = heads[:queries, 1]
        for b, edges in ((head, [(D, queries)]),
                         (head.T, [(queries, D), (D, queries)])):
            depth, P = b.shape
            packed = np.zeros((math.ceil(P / NR), depth, NR), np.float32).view(Counting)
            pack_columns(b, packed)
            whole = packed.view(np.ndarray).swapaxes(0, 1).reshape(depth, -1)
            assert np.array_equal(whole[:, :P], b)
            assert packed.written <= sum(lanes * long for wide, long in edges if wide % lanes)


@both_types
def test_nan_in_a_query_reaches_no_other_query(dtype):
    """Also where the last block has fewer queries, and vectors hold what others left there."""
    q, k, v, g = normal(4, 1, 2, 69, 24, dtype=dtype)
    settings = AttentionSettings(causal=True, scale=0.2)
    bad = np.s_[0, 0, 10:50]
    broken = q.copy()
    broken[bad] = np.nan

    def attended(q):
        values = formulas.attention(q, k, v, settings)
        return values[0], *formulas.attention_vjp(g, q, k, v, *values, settings)
    whole = attended(q)
    found = attended(broken)
    for one, other in zip(whole[:2], found[:2]):        # the output, and dq
        assert np.isnan(other[bad]).all()
        other[bad] = one[bad]
        assert np.array_equal(one, other)
    for one, other in zip(whole[2:], found[2:]):        # dk and dv, of the other head
        assert np.array_equal(one[0, 1], other[0, 1])


@compiled_only       # NumPy multiplies weights of 0, too
@both_types
def test_causal_attention_multiplies_no_sixteen_queries_by_what_comes_after_all_of_them(dtype):
    q, k, v, g = normal(4, 1, 1, 64, 40, dtype=dtype)
    settings = AttentionSettings(causal=True, scale=0.2)
    values = formulas.attention(q, k, v, settings)
    gradients = formulas.attention_vjp(g, q, k, v, *values, settings)
    for first in (16, 32, 48):
        later_v = v.copy()
        later_v[:, :, first:] = np.nan
        out = formulas.attention(q, k, later_v, settings)[0]
        assert np.array_equal(out[:, :, :first], values[0][:, :, :first])
        dq = formulas.attention_vjp(g, q, k, later_v, *values, settings)[0]
        assert np.array_equal(dq[:, :, :first], gradients[0][:, :, :first])
        earlier_g = g.copy()
        earlier_g[:, :, :first] = np.nan
        _, dk, dv = formulas.attention_vjp(earlier_g, q, k, v, *values, settings)
        assert np.array_equal(dk[:, :, first:], gradients[1][:, :, first:])
        assert np.array_equal(dv[:, :, first:], gradients[2][:, :, first:])


@both_types
def test_memory_of_attention_begins_on_a_line_of_the_cache(dtype, monkeypatch):
    for name in ("on_a_line", "ceil_div"):
        function = getattr(attention, name)
        monkeypatch.setattr(attention, name, getattr(function, "py_func", function))
    panels, block, whole_vectors = (
        getattr(function, "py_func", function)
        for function in (attention.panels, attention.block, attention.whole_vectors))
    like = np.empty(0, dtype)
    made = []
    for columns in range(1, 40):        # all are kept, so that each lies elsewhere
        made += [panels(3, columns, like), block(columns, like), whole_vectors(3, columns, like)]
        assert not made[-3].any()
        assert made[-3].size >= 3 * columns
        assert made[-2].shape == (columns, attention.QUERIES)
        assert made[-1].shape[1] >= columns
    assert [x.ctypes.data % matmul.LINE for x in made] == [0] * len(made)


@by_both
def test_attention_also_returns_the_highest_score_and_1_by_the_sum_of_each_softmax(on):
    q, k, v = normal(3, 1, 2, 5, 4)
    mask = np.zeros((1, 2, 5, 5))
    mask[:, :, 2] = -np.inf             # which may attend to no key
    _, top, inverse = on.attention(q, k, v, AttentionSettings(mask, scale=0.5))
    scores = 0.5 * q @ k.swapaxes(-1, -2)
    expected = scores.max(axis=-1, keepdims=True)
    sums = np.exp(scores - expected).sum(axis=-1, keepdims=True)
    assert top.shape == inverse.shape == (1, 2, 5, 1) and (inverse[:, :, 2] == 0).all()
    others = [0, 1, 3, 4]
    assert np.allclose(top[:, :, others], expected[:, :, others], rtol=1e-12)
    assert np.allclose(inverse[:, :, others], 1 / sums[:, :, others], rtol=1e-12)


@by_both
def test_self_attention_is_attention_to_the_heads_that_stand_beside_each_other(on):
    """Queries first, then keys, then values; and so do their gradients."""
    H, G, D = 4, 2, 3
    qkv = normal(2, 5, (H + 2 * G) * D)
    g = normal(2, 5, H * D, seed=1)
    settings = AttentionSettings(causal=True, scale=0.5)

    def heads(x):
        return x.reshape(2, 5, -1, D).swapaxes(1, 2)

    def channels(x):
        return x.swapaxes(1, 2).reshape(2, 5, -1)
    q, k, v = [heads(x) for x in np.split(qkv, [H * D, (H + G) * D], axis=-1)]
    values = on.attention(q, k, v, settings)
    gradients = on.attention_vjp(heads(g), q, k, v, *values, settings)
    packed = on.self_attention(qkv, H, G, settings)
    dqkv = on.self_attention_vjp(g, qkv, H, G, *packed, settings)
    assert np.allclose(packed[0], channels(values[0]), rtol=1e-12)
    expected = np.concatenate([channels(dx) for dx in gradients], axis=-1)
    assert np.allclose(dqkv, expected, rtol=1e-12, atol=1e-14)


@compiled_only
def test_vector_functions_are_right_to_the_last_digits_of_float32():
    from minigrad.kernels.compiler.vector_math import exp, log, normal_cdf

    @numba.njit(error_model="numpy")
    def all_three(x, density, out):
        for i in range(x.size):
            out[0, i] = exp(x[i])
            out[1, i] = normal_cdf(x[i], density[i])
            out[2, i] = log(exp(abs(x[i])))

    def computed(x):
        density = np.exp(-np.square(x.astype(np.float64)) / 2)
        out = np.empty((3, x.size), np.float32)
        all_three(x, density.astype(np.float32), out)
        return out

    def error(found, exact):
        return np.abs(found / exact - 1).max()

    x = np.concatenate([np.linspace(-87, 88.3, 200_001), np.linspace(-13, 13, 200_001)])
    x = x.astype(np.float32)
    exact = x.astype(np.float64)
    cdf = np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in exact])
    e, Phi, log_e = computed(x)
    assert error(e, np.exp(exact)) < 2e-7
    assert np.abs(Phi - cdf).max() < 3e-7
    near = abs(exact) < 12                          # farther out the density has few digits
    assert error(Phi[near], cdf[near]) < 7e-7
    far = abs(exact) > 0.1                          # nearer, exp rounds more of x away
    assert error(log_e[far], abs(exact[far])) < 2e-6

    e, Phi, log_e = computed(np.array([np.nan, np.inf, -np.inf, 89, -104, 0], np.float32))
    assert np.array_equal(e, np.float32([np.nan, np.inf, 0, np.inf, 0, 1]), equal_nan=True)
    assert np.isnan([Phi[0], log_e[0]]).all()
    assert list(Phi[1:3]) == [1, 0] and log_e[1] == np.inf


@compiled_only
def test_the_normal_distributions_polynomial_is_the_fitted_one():
    from minigrad.kernels.compiler import vector_math
    from tests.reference.fit_normal_tail import fit
    coefficients, error = fit()
    assert error < 1.5e-7
    assert np.allclose(vector_math.TAIL, coefficients, rtol=1e-4)


@by_both
def test_a_part_of_a_batch_drops_what_the_whole_drops_there(on):
    B, H, T, D, n, start = 5, 2, 9, 4, 3, 2
    rng = np.random.default_rng(6)
    p = 0.4
    seed = 2**40 + 7
    q, k, v, g = normal(4, B, H, T, D, seed=rng)
    table = normal(20, D, seed=rng)
    ids = rng.integers(20, size=(B, n))

    def computed(begin):
        """What the rows of the batch from `begin` on give."""
        rows = slice(begin, None)
        heads = [x[rows] for x in (q, k, v)]
        drop = DropoutSettings(p, seed, begin * H * T * T)
        settings = AttentionSettings(None, True, 0.5, drop)
        out, top, inverse = on.attention(*heads, settings)
        gradients = on.attention_vjp(g[rows], *heads, out, top, inverse, settings)
        totals = np.zeros((B - begin, 20, D))
        for r, total in enumerate(totals, start=begin):
            on.add_rows(total, ids[r:r + 1], g[r:r + 1, 0, 0], DropoutSettings(p, seed, r * n))
        return [on.dropout(q[rows], DropoutSettings(p, seed, begin * H * T * D)), out,
                *gradients,
                on.sum_rows(table, ids[rows], DropoutSettings(p, seed, begin * n)), totals]
    whole = computed(0)
    for one, other in zip(whole, computed(start), strict=True):
        assert np.allclose(one[start:], other, rtol=1e-12, atol=1e-14)
    together = np.zeros((20, D))
    on.add_rows(together, ids, g[:, 0, 0], DropoutSettings(p, seed))
    assert np.allclose(together, whole[-1].sum(axis=0), rtol=1e-12)


@both_types
@pytest.mark.parametrize("i, seed", [(0, 3), (1, 2**32), (777, 2**63 - 1),
                                     (99_999, 1234567890123456789)])
def test_dropout_keeps_an_element_if_and_only_if_its_32_bits_reach_p(i, seed, dtype):
    """The bits again, in Python's whole numbers, which never overflow."""
    bits = i
    for half in (seed % 2**32, seed // 2**32):
        bits ^= half
        bits = (bits ^ bits >> 16) * 0x7FEB352D % 2**32
        bits = (bits ^ bits >> 15) * 0x846CA68B % 2**32
        bits ^= bits >> 16
    ones = np.ones(100_000, dtype)          # enough for several threads
    for dropout in (formulas.dropout, plain.dropout):
        assert dropout(ones, DropoutSettings(bits / 2**32, seed))[i] > 0
        assert dropout(ones, DropoutSettings((bits + 1) / 2**32, seed))[i] == 0


def test_dropout_masks_look_random():
    n = 1_000_000
    p = 0.3
    masks = np.stack([formulas.dropout(np.ones(n, np.float32), DropoutSettings(p, seed)) > 0
                      for seed in (1, 2, 2**32 + 1)])
    error = 4 / np.sqrt(n)          # four standard errors of a mean, and of a correlation
    unit = (masks - (1 - p)) / np.sqrt(p * (1 - p))
    assert np.abs(unit.mean(axis=1)).max() < error
    for lag in (1, 2, 64, 256, 65536):
        along = (unit[:, lag:] * unit[:, :-lag]).mean(axis=1)
        assert np.abs(along).max() < error, lag
    assert np.abs(np.corrcoef(masks)[np.triu_indices(3, 1)]).max() < error


@compiled_only
@both_types
def test_heads_that_share_keys_add_up_like_one_head_of_all_their_queries(dtype):
    """Bit for bit: no sum depends on how queries are cut into blocks."""
    q, g = normal(2, 2, 3, 70, 8, dtype=dtype)
    k, v = normal(2, 2, 1, 40, 8, seed=1, dtype=dtype)
    settings = AttentionSettings(scale=0.3)

    def gradients(q, g):
        values = formulas.attention(q, k, v, settings)
        _, dk, dv = formulas.attention_vjp(g, q, k, v, *values, settings)
        return dk, dv
    one_head = gradients(q.reshape(2, 1, 210, 8), g.reshape(2, 1, 210, 8))
    assert all(map(np.array_equal, gradients(q, g), one_head))


@compiled_only
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_passes_through_the_activations(activation):
    nan = np.full((1, 1), np.nan, np.float32)
    one = np.ones((1, 1), np.float32)
    assert np.isnan(formulas.mlp(nan, one, None, one, None, activation)).all()
    dx, dup, _, ddown, _ = formulas.mlp_vjp(one, one, one, None, one, None, nan, activation)
    assert np.isnan([dx, dup, ddown]).all()


@numba.njit
def rows_by_place(ids, count, found):
    for t in range(ids.size):
        rows_at(ids, t, count, found[t])


@compiled_only
@pytest.mark.parametrize("n", range(2, 9))
def test_the_rows_of_ngrams_are_those_of_decoding_exactly(n):
    def assert_same(ids, count):
        found = formulas.ngram_rows(ids, n, count)
        decoded = np.empty((*ids.shape, n - 1), np.int64)
        for at in np.ndindex(ids.shape[:-1]):
            rows_by_place(ids[at].astype(np.int64), count, decoded[at])
        assert found.dtype == np.int64 and np.array_equal(found, decoded)
    rng = np.random.default_rng(n)
    for shape in ((1,), (9,), (4, 1), (3, 20), (2, 3, 7), (0, 5), (2, 0)):
        for dtype in (np.int64, np.int32, np.uint8, np.uint64):
            limits = np.iinfo(dtype)
            for low, high in ((0, 64), (limits.max - 2, limits.max), (limits.min, limits.max)):
                ids = rng.integers(low, high, shape, dtype, endpoint=True)
                for count in (1, 7, 32768, 2**62 + 1):
                    assert_same(ids, count)
                assert_same(ids.T, 7)           # which lies in memory another way


MATRICES = [(1, 1), (50, 50), (96, 40), (40, 96), (60, 50), (7, 300), (60, 800), (800, 60), (0, 4),
            (4, 0), (128, 128), (90, 300), (150, 150)]


@both_types
@pytest.mark.parametrize("name, shapes, state, drawn, whole", [
    ("adamw_of_each", [(), (0,), (3, 5), (300, 200), (1,)], 4,
     ("lr", "beta1", "beta2", "eps", "weight_decay"), {"steps": 3}),
    *[("muon_of_each", MATRICES, 3, ("lr", "momentum", "weight_decay"),
       {"ns_steps": steps, "equal_rows": equal_rows})
      for steps, equal_rows in ((5, False), (3, True), (1, False))]])
def test_a_step_of_many_parameters_is_the_plain_one_on_any_threads(name, shapes, state, drawn,
                                                                   whole, dtype):
    rng = np.random.default_rng(8)
    first = [[np.array(normal(*shape, seed=rng, dtype=dtype)) for shape in shapes]
             for _ in range(state)]
    first[-1] = [np.square(x, out=x) for x in first[-1]]
    for arrays in first[1:]:
        arrays[0][...] = 0                                      # no direction, and no step
    settings = [{key: rng.uniform(0.01, 0.9) for key in drawn} | whole for _ in shapes]

    def stepped(on, threads):
        numba.set_num_threads(threads)
        arrays = [[x.copy() for x in xs] for xs in first]
        getattr(on, name)(list(zip(*arrays, settings)))
        return [x for xs in arrays for x in xs]
    one = stepped(formulas, 1)
    assert all(map(np.array_equal, one, stepped(formulas, numba.config.NUMBA_NUM_THREADS)))
    for x, y in zip(one, stepped(plain, 1), strict=True):
        assert_close(x, y, dtype)


SIX = np.ones((2, 3), np.float32)
FOUR = np.ones(4, np.float32)
DOUBLES = FOUR.astype(np.float64)
IDS = np.zeros((5, 2), int)
TWO_ROWS = Rows(np.array([0]), np.ones((1, 2), np.float32), (2, 2))


ADAMW = dict(lr=1.0, beta1=0.5, beta2=0.5, eps=1.0, weight_decay=1.0, steps=1)
MUON = dict(lr=1.0, momentum=1.0, weight_decay=1.0, ns_steps=5)


def with_other(bad, at):
    """Arguments of adamw_of_each, of which one array is another."""
    arrays = [FOUR] * 4
    arrays[at] = bad
    return [[(SIX, SIX, SIX, SIX, ADAMW), (*arrays, ADAMW)]]


@compiled_only
@pytest.mark.parametrize("f, arguments, says", [
    *[("adamw_of_each", with_other(bad, at), "takes 4 numbers of float32 from an array that has ")
      for at in (1, 2, 3) for bad in (FOUR[:3], SIX, DOUBLES)],
    ("adamw_of_each", [[(SIX, SIX, SIX, SIX, ADAMW), (DOUBLES,) * 4 + (ADAMW,)]],
     "has 4 of float64"),
    ("adamw_of_each", [[(SIX, TWO_ROWS, SIX, SIX, ADAMW)]], "takes 6 numbers of float32"),
    ("muon_of_each", [[(SIX, SIX[:1], SIX, MUON)]], "takes 6 numbers of float32"),
    ("muon_of_each", [[(SIX, SIX, SIX.astype(np.float64), MUON)]], "has 6 of float64"),
    *[("add_rows", [SIX.copy(), IDS, np.ones(shape, np.float32), DropoutSettings()],
       f"{[*shape]} cannot be added to rows of [2, 3] for ids of [5, 2]")
      for shape in ((4, 3), (5, 4))]])
def test_what_takes_addresses_or_sizes_from_one_array_refuses_others(f, arguments, says):
    assert says in refusal(ValueError, getattr(formulas, f), *arguments)


@compiled_only
@pytest.mark.parametrize("more", [[], [np.ones((1, 3), np.float32)]])
@pytest.mark.parametrize("ids", [[[0, 2]], [[-1, 0]], [[2 ** 62, 0]]])
def test_sum_rows_and_add_rows_refuse_a_row_that_is_not_there(ids, more):
    f = formulas.add_rows if more else formulas.sum_rows
    assert "and the table has 2 rows" in refusal(
        IndexError, f, SIX, np.array(ids), *more, DropoutSettings())


@compiled_only
@pytest.mark.parametrize("row", [0, 17, 39])
@pytest.mark.parametrize("target", [-1, 3, 2 ** 62, -2 ** 62])
def test_cross_entropy_refuses_a_target_that_is_no_class(target, row):
    targets = np.zeros(40, np.int64)
    targets[row] = target
    logits = np.ones((40, 3), np.float32)
    assert refusal(IndexError, formulas.cross_entropy, logits, targets, -100)
    losses, slopes, counted = formulas.cross_entropy(logits, targets, target)
    assert counted == 39
    assert np.flatnonzero(losses == 0).tolist() == [row]
    assert np.flatnonzero((slopes == 0).all(axis=1)).tolist() == [row]


@compiled_only
def test_draw_refuses_another_count_of_random_numbers_than_of_rows():
    for n in (1, 3):
        assert "2 rows of logits need as many numbers u" in refusal(
            ValueError, random.draw, SIX, np.zeros(n), 1.0, None, None)


@pytest.mark.parametrize("sizes", [(0,), (1, 0, 100), (100_000, 7)])
def test_sum_of_squares_is_the_plain_one(sizes):
    xs = [normal(n, seed=n, dtype=np.float32) for n in sizes]
    for given in (xs, [*xs, np.ones(3)], []):           # also of two types, and of no array
        assert np.isclose(formulas.sum_of_squares(given), plain.sum_of_squares(given), rtol=1e-6)


@both_types
def test_draws_and_their_probabilities_are_the_plain_ones(dtype):
    rng = np.random.default_rng(0)
    for n in range(300):
        B = rng.integers(1, 6)
        V = rng.integers(1, 80)
        logits = normal(B, V, seed=rng, dtype=dtype) * 10.0 ** rng.integers(-3, 4)
        if n % 3 == 0:
            logits = np.round(logits)                       # so that some are equal
        if n % 4 == 0:
            logits[rng.random((B, V)) < 0.5] = -np.inf
        if n % 20 == 0:
            logits[0, -1] = rng.choice([np.nan, np.inf])
        settings = [rng.choice(values) for values in (
            [0, 1e-6, 0.5, 1, 1e6], [None, 1, 3, 1000], [None, 1e-9, 0.5, 0.9, 1.0])]
        u = rng.choice([0, rng.random(), 1 - 2**-53], B)
        drawn, p = random.draw(logits, u, *settings)
        expected, stated = plain.draw(logits, u, *settings)
        assert drawn.dtype == np.int64 and np.array_equal(drawn, expected)
        assert np.allclose(p, stated, rtol=1e-12, atol=0)
        assert ((drawn >= 0) == (np.isfinite(logits.max(axis=1)))).all()


@compiled_only
@pytest.mark.parametrize("dtype", ["int64", "float16"])
def test_integers_and_half_floats_are_refused_by_name(dtype):
    assert f"softmax_kernel computes in float32 or float64, not in {dtype}" in refusal(
        TypeError, formulas.softmax, np.ones((2, 2), dtype))


@compiled_only
def test_the_clock_of_a_run_stands_still_while_kernels_are_compiled(monkeypatch):
    from minigrad.kernels.compiler import compiling
    monkeypatch.setattr(compiling, "seconds", 0.0)
    clock = itertools.count(step=1000)
    monkeypatch.setattr(compiling, "time", SimpleNamespace(perf_counter=lambda: next(clock)))

    @compiling.kernel
    def waited_for(x: compiling.C1):
        x[0] = 1
    for dtype in (np.float64, np.float64, np.float32):
        waited_for(np.zeros(1, dtype))
    assert compiling.seconds == 2000        # once for each type
    assert compiled.clock is compiling.clock
    assert compiled.clock() == next(clock) - 1000 - 2000


@pytest.mark.parametrize("x, y, warning", [
    (np.inf, 1, None), (np.nan, np.inf, None), (np.inf, np.inf, None),
    (3e38, 3e38, "overflow encountered in add"),
    (np.inf, -np.inf, "invalid value encountered in add")])
def test_a_sum_of_large_arrays_warns_as_numpy_does(x, y, warning):
    xs, ys = normal(2, 300_000, dtype=np.float32)
    xs[-1], ys[-1] = x, y
    with np.errstate(all="raise"):
        for out in (None, xs):
            with pytest.raises(FloatingPointError, match=warning) if warning else nullcontext():
                formulas.add(xs, ys, out)
