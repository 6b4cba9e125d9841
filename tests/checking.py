"""Gradient checks of a module, and what they need."""
import math

import numpy as np

import minigrad as mg

# Settings of gradcheck, far below its defaults.  One direction finds a wrong number as surely as 2.
STRICT = dict(rtol=1e-6, atol=1e-7, directions=1)
# By which a kernel may differ from its formula, where the largest number counts.
TOLERANCE = {np.float32: 3e-6, np.float64: 1e-13}


def random_weights(module, scale=1.0):
    """Draw new weights, with which attention is far from uniform; returns the module."""
    rng = frozen(4)
    for p in module.parameters():
        p.data[...] = scale * rng.standard_normal(p.shape)
    return module


def frozen(seed=3):
    """A new generator, which always draws the same."""
    return np.random.default_rng(seed)


def assert_normal(array, std):
    """Mean and standard deviation within five standard errors of those of a normal sample."""
    assert abs(array.mean()) < 5 * std / math.sqrt(array.size)
    assert abs(array.std() / std - 1) < 5 / math.sqrt(2 * array.size)
    inside = (np.abs(array) < std).mean()
    assert abs(inside - 0.6827) < 5 * math.sqrt(0.6827 * 0.3173 / array.size)


class Counting(np.random.Generator):
    """Counts the dropouts that are drawn from it: each takes one number."""
    drawn = 0

    def integers(self, *args, **settings):
        self.drawn += 1
        return super().integers(*args, **settings)


def put(module, path, tensor):
    """Replace the parameter with this path."""
    *way, last = path.split(".")
    for name in way:
        module = module[int(name)] if name.isdigit() else getattr(module, name)
    setattr(module, last, tensor)


def check_gradients(module, *inputs, **settings):
    """Compare the gradient of every parameter and every float input with central differences.  A
    setting that is `frozen` becomes a new generator at each call."""
    paths = list(module.state_dict())

    def f(*tensors):
        for path, tensor in zip(paths, tensors):
            put(module, path, tensor)
        made = {name: value() if value is frozen else value for name, value in settings.items()}
        given = (x.data if x.dtype.kind == "i" else x for x in tensors[len(paths):])
        return module(*given, **made)
    return mg.gradcheck(f, *module.state_dict().values(), *inputs, **STRICT)


def weighted(out):
    """A scalar to go back from, in which every output has a weight of its own."""
    return (out * np.cos(np.arange(out.size)).reshape(out.shape)).sum()


def gradients(out, *leaves):
    """The gradient of weighted(out) to each leaf; earlier gradients are dropped."""
    for one in leaves:
        one.grad = None
    weighted(out).backward()
    return [one.grad for one in leaves]


def assert_close(actual, expected, dtype):
    """Equal up to the rounding of their type, where the largest number counts."""
    assert actual.dtype == expected.dtype == dtype
    assert actual.shape == expected.shape
    scale = max(1, np.abs(expected).max(initial=0))
    assert np.abs(actual - expected).max(initial=0) <= TOLERANCE[dtype] * scale


def close(xs, ys):
    """Whether arrays are equal in pairs, up to the rounding of float64."""
    return all(np.allclose(x, y, rtol=1e-9, atol=1e-11) for x, y in zip(xs, ys, strict=True))
