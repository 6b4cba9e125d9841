"""Muon against its formula written out, and its steps against singular value decompositions."""
import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas
from minigrad.core import Tensor


def parameter(*shape, seed=0, dtype=np.float64):
    values = np.random.default_rng(seed).standard_normal(shape)
    return Tensor(values.astype(dtype), requires_grad=True)


def with_singular_values(values, rows, columns, seed=0):
    """(U, S, V^T) of a random matrix with these."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((n, len(values))))[0] for n in (rows, columns))
    return U, np.array(values), V.T


def orthogonalized(x, steps=5):
    """What a first step of size 1 goes by, from p = 0: about U V^T for x = U S V^T."""
    p = np.zeros_like(x)
    formulas.muon([p], [x], [np.zeros_like(x)], np.array([[0.0, 1.0, -1.0]]), steps)
    return p


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows, columns", [(40, 40), (40, 30), (100, 25), (25, 100)])
def test_directions_stay_and_all_become_about_as_long(rows, columns, dtype):
    U, S, Vt = with_singular_values(np.geomspace(1, 0.01, 25), rows, columns)
    made = orthogonalized(((U * S) @ Vt).astype(dtype))
    along = U.T @ made @ Vt.T                       # as diagonal as the rounding leaves it
    assert 0.68 < np.diag(along).min() and np.diag(along).max() < 1.21
    assert np.abs(along - np.diag(np.diag(along))).max() < (1e-3 if dtype == np.float32 else 1e-11)
    assert np.linalg.svd(made, compute_uv=False).max() < 1.21
    assert np.linalg.norm(made - U @ Vt) / np.linalg.norm(U @ Vt) < 0.3


def test_it_does_not_depend_on_the_size_of_the_gradient():
    x = np.random.default_rng(0).standard_normal((60, 90)).astype(np.float32)
    assert np.allclose(orthogonalized(x * 1e-4), orthogonalized(x), atol=1e-3)


@pytest.mark.parametrize("steps, least", [(5, 0.0015), (3, 0.018), (2, 0.062)])
def test_so_many_steps_lengthen_all_directions_from_some_length_on(steps, least):
    for rows in (30, 60):
        U, S, Vt = with_singular_values(np.geomspace(1, 1e-4, 30), rows, 60)
        S /= np.linalg.norm(S)
        made = orthogonalized((U * S) @ Vt, steps)
        long = np.diag(U.T @ made @ Vt.T) > 0.68
        assert np.array_equal(long, S > least)


def newton_schulz(x):
    """The published one, of one matrix."""
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
    return x


def test_muon_follows_its_formula_by_group_and_section():
    packed, tall, wide = parameter(20, 8), parameter(12, 5, seed=1), parameter(5, 12, seed=2)
    optimizer = mg.Muon([{"params": [packed], "sections": (10, 4, 6), "weight_decay": 0.1},
                         {"params": [tall, wide], "lr": 0.03, "momentum": 0.8}], lr=0.01)
    of = [(packed, 0.01, 0.95, 0.1, [0, 10, 14, 20]), (tall, 0.03, 0.8, 0.0, [0, 12]),
          (wide, 0.03, 0.8, 0.0, [0, 5])]
    expected = [p.data.copy() for p, *_ in of]
    momenta, rng = [np.zeros(p.shape) for p, *_ in of], np.random.default_rng(3)
    for _ in range(4):
        for i, (p, lr, momentum, decay, cuts) in enumerate(of):
            g = p.grad = rng.standard_normal(p.shape)
            momenta[i] = momentum * momenta[i] + g
            nesterov = g + momentum * momenta[i]
            expected[i] *= 1 - lr * decay
            for start, end in zip(cuts, cuts[1:]):
                scale = math.sqrt(max(1, (end - start) / p.shape[1]))
                expected[i][start:end] -= lr * scale * newton_schulz(nesterov[start:end])
        optimizer.step()
    for (p, *_), x in zip(of, expected):
        assert np.allclose(p.data, x, rtol=0, atol=1e-12)


def moved(sections):
    """The size of the step of each third of a matrix, whose last has by far the largest
    gradient."""
    p = parameter(24, 8)
    before = p.data.copy()
    p.grad = np.random.default_rng(1).standard_normal(p.shape)
    p.grad[16:] *= 100
    mg.Muon([{"params": [p], "sections": sections}], lr=1.0).step()
    return [np.linalg.norm(part) for part in np.split(p.data - before, 3)]


def test_no_section_is_kept_from_moving_by_the_gradient_of_another():
    apart, together = moved((8, 8, 8)), moved(None)
    assert max(apart) < 1.5 * min(apart)
    assert max(together) > 10 * min(together)


def test_a_quadratic_is_minimised_in_place_and_in_its_own_type():
    p, target = parameter(6, 4, dtype=np.float32), np.random.default_rng(1).random((6, 4))
    held, optimizer = p.data, mg.Muon([p], lr=0.5)
    for step in range(200):
        optimizer.param_groups[0]["lr"] = 0.5 * (1 - step / 200)
        optimizer.zero_grad()
        ((p - target.astype(np.float32)) ** 2).sum().backward()
        optimizer.step()
    assert np.abs(p.data - target).max() < 0.05 and p.data is held and p.dtype == np.float32


def test_a_parameter_without_a_gradient_stays():
    p, q = parameter(2, 3), parameter(2, 3, seed=1)
    before = q.data.copy()
    optimizer = mg.Muon([p, q], weight_decay=0.5)
    (p * p).sum().backward()
    optimizer.step()
    assert np.array_equal(q.data, before) and not optimizer.momentum[1].any()


def test_what_is_no_matrix_and_what_does_not_fill_one_is_refused():
    with pytest.raises(ValueError, match=r"steps matrices, and this has the shape \[3\]; give it"):
        mg.Muon([parameter(3)])
    with pytest.raises(ValueError, match=r"sections of \(2, 3\) rows .* the shape \[6, 4\]"):
        mg.Muon([{"params": [parameter(6, 4)], "sections": (2, 3)}])
