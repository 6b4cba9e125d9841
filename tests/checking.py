"""What several test files need to check a module of parameters."""
import numpy as np

import minigrad as mg
from minigrad import Tensor

# gradcheck's, far below its defaults; one direction finds a wrong number as surely as two.
STRICT = dict(rtol=1e-6, atol=1e-7, directions=1)


def frozen():
    """A fresh generator, always of the same seed."""
    return np.random.default_rng(3)


def random_weights(module, scale=1.0):
    """The module with weights at which attention is far from uniform."""
    rng = np.random.default_rng(4)
    for p in module.parameters():
        p.data[...] = scale * rng.standard_normal(p.shape)
    return module


def put(module, path, tensor):
    """Set the parameter of that path."""
    *way, last = path.split(".")
    for name in way:
        module = module[int(name)] if name.isdigit() else getattr(module, name)
    setattr(module, last, tensor)


def check_gradients(module, *inputs, **settings):
    """Every parameter of the module, and every input that is no id, against central differences."""
    paths = list(module.state_dict())

    def f(*tensors):
        for path, tensor in zip(paths, tensors):
            put(module, path, tensor)
        made_anew = {name: value() if value is frozen else value
                     for name, value in settings.items()}
        given = (x.data if x.dtype.kind == "i" else x for x in tensors[len(paths):])
        return module(*given, **made_anew)
    return mg.gradcheck(f, *module.state_dict().values(), *inputs, **STRICT)


def weighted(out):
    """A number to go back from, in which every output counts otherwise."""
    return (out * np.cos(np.arange(out.size)).reshape(out.shape)).sum()


def gradients(out, *leaves):
    """d(weighted(out))/d(leaf) of each leaf, which forgets what it had."""
    for leaf in leaves:
        leaf.grad = None
    weighted(out).backward()
    return [leaf.grad for leaf in leaves]


def close(xs, ys):
    """Whether arrays agree one by one to the rounding of float64."""
    return all(np.allclose(x, y, rtol=1e-9, atol=1e-11) for x, y in zip(xs, ys, strict=True))


def leaf(array):
    """A copy of the array as a Tensor whose gradient is wanted."""
    return Tensor(np.array(array), requires_grad=True)
