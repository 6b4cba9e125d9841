"""Examples of every op, for the tests of its gradients, its kernels and its errors.

To add an op, add a line to EXAMPLES: its name, its arguments, and its settings, as in

    call("linear", Normal(3, 4), Normal(5, 4)),

`Normal(3, 4)` stands for an array of this shape of normal numbers, `Positive` for one of positive
numbers, `ints([2, 0])` is an array of whole numbers, and `frozen` as a setting makes a generator.
All else, a number, a tuple or an array, is given to the op as it is.  Each example draws its arrays
from a generator of its own: a new line changes no other example.
"""
import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad.core import Tensor
from tests.checking import frozen

ints = partial(np.array, dtype=int)


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Stands for an array, which an example makes by this function of its generator."""
    draw: Callable


def Normal(*shape, mean=0.0, std=1.0):
    return Drawn(lambda rng: np.asarray(mean + std * rng.standard_normal(shape)))


def Positive(*shape):
    return Drawn(lambda rng: np.asarray(rng.uniform(0.5, 2, shape)))


def Whole(below, *shape):
    """Whole numbers from 0 on."""
    return Drawn(lambda rng: rng.integers(below, size=shape))


def Constant(array):
    """A Tensor of an array that may not be written into; it has no gradient."""
    def draw(rng):
        a = array.draw(rng)
        a.flags.writeable = False
        return Tensor(a)
    return Drawn(draw)


def drawn_for(name, args):
    """The arguments of an op with the arrays that it stands for, which depend on nothing else."""
    rng = np.random.default_rng(list(name.encode()))

    def drawn(a):
        if isinstance(a, list):
            return [drawn(part) for part in a]
        return a.draw(rng) if isinstance(a, Drawn) else a
    return tuple(drawn(a) for a in args)


def call(name, *args, **settings):
    """An example: the op's name, its arguments and its settings."""
    args = drawn_for(name, args)
    return pytest.param(name, args, settings, id=f"{name}-{'-'.join(map(brief, args))}")


def brief(a):
    if isinstance(a, np.ndarray):
        return "x".join(map(str, a.shape)) or "()"
    return type(a).__name__


# Shapes of two arguments of which one is broadcast, or both.
BROADCAST = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 1, 3), (4, 1)),
    ((), (2, 2)),
    ((1, 1), (3, 1)),
    ((0, 3), (3,)),
]
REDUCED = [
    {},
    {"axis": 1},
    {"axis": (0, 2)},
    {"axis": -1, "keepdims": True},
    {"keepdims": True},
]
PRODUCTS = [            # letters, and the shapes of one array or two
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("...ij,jk->...ik", (2, 2, 3), (3, 4)),
    ("...i,...i->...", (1, 2, 3), (4, 1, 3)),
    ("ij,ij->ij", (1, 3), (2, 1)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("i,j->ji", (2,), (3,)),
    ("i,i", (3,), (3,)),
    ("ij,k->i", (2, 3), (4,)),
    ("iij,kik->j", (3, 3, 2), (4, 3, 4)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("i,->i", (3,), ()),
    ("ji", (2, 3)),
    ("ij->i", (2, 3)),
    ("ij->", (0, 3)),
    ("...ii->...", (2, 3, 3)),
    ("iij->ji", (3, 3, 2)),
    ("...i->i...", (2, 3, 4)),
]
LOSSES = [              # settings of cross_entropy
    {"reduction": "sum"},
    {"reduction": "none"},
    {"weight": [0.5, 2.0, 0.0]},
    {"weight": [1, 2, 3], "reduction": "none"},
    {"label_smoothing": 0.1},
    {"label_smoothing": 1.0, "reduction": "sum"},
    {"label_smoothing": 0.1, "weight": [1, 2, 3], "reduction": "none"},
    {"label_smoothing": 0.1, "weight": [1, 2, 3]},
]
INDICES = [
    (slice(1, 4, 2), 0),
    (Ellipsis, None, -1),
    (np.array([0, 0, 2]), np.array([1, 1, 0])),
    np.array([True, False, True, True, False]),
    [0, 0, 3],
]
# Where to split 4 rows.
PLACES = [
    [3, 2],
    [3, 1],
    [1, 1],
    [-1],
    [-1, 1],
    [9],
    [-9, 9, 2],
    [],
    np.array([2, 0]),
]
APART = (np.arange(24) * 7 % 24).reshape(2, 3, 4) / 7.0     # no two equal: for max and maximum
FAR = np.array([[-350.0, -200.0, -90.0], [0.5, 100.0, 280.0]])  # e^x leaves the range of float32
ZERO_AND_OTHERS = np.array([0.0, 1.0, -2.0])
LEFT_OF_THREE = np.array([True, False, True])

EXAMPLES = [
    call("multiply", Normal(2, 3), 0.5),
    call("add", Normal(2, 3), 2),
    call("subtract", 1.0, Normal(3)),
    call("divide", 2.0, Positive(3)),
    call("power", Positive(2, 3), Normal(2, 3)),
    call("power", Positive(2, 3), Normal(3)),
    call("power", Positive(2, 1, 3), Normal(4, 1)),
    call("power", Positive(), Normal(2, 2)),
    call("power", Positive(1, 1), Normal(3, 1)),
    call("power", Positive(0, 3), Normal(3)),
    call("power", Normal(2, 3), 2),
    call("power", Normal(2, 3), 3.0),
    call("power", Positive(4), -0.5),
    call("power", 2.0, Normal(3)),
    call("negative", Normal(2, 3)),
    *[call(name, Normal(*shape)) for name in ("abs", "square", "exp", "expm1", "sin", "cos")
      for shape in ((2, 3), (), (0, 3))],
    call("expm1", Normal(2, 3, std=1e-9)),
    *[call("log1p", Positive(*shape)) for shape in ((2, 3), (), (0, 3))],
    call("log1p", Normal(2, 3, std=1e-9)),
    call("log", Positive(2, 3)),
    call("sqrt", Positive(2, 3)),
    call("tanh", Normal(2, 3)),
    call("sigmoid", Normal(2, 3)),
    call("silu", Normal(2, 3)),
    call("gelu", Normal(2, 3)),
    call("gelu", Normal(2, 3), approximate="tanh"),
    call("gelu", Normal(0, 3)),
    *[call(name, Normal(2, 3), 0.1) for name in ("maximum", "minimum")],
    *[call(name, Normal(2, 1), Normal(3)) for name in ("maximum", "minimum")],
    call("clip", Normal(2, 3), -0.5, 0.5),
    call("clip", Normal(2, 3), None, 0.1),
    call("clip", Normal(2, 3), 0.1),
    call("clip", Normal(2, 1), Normal(3), Positive(4, 1, 1)),
    call("clip", Normal(), -0.1, 0.1),
    call("clip", Normal(0, 3), Normal(3)),
    call("leaky_relu", Normal(2, 3)),
    call("leaky_relu", Normal(2, 3), 0.3),
    call("softplus", Normal(2, 3)),
    call("softplus", Normal(0, 3)),
    call("sum", Normal(0, 3), axis=0),
    call("sum", Normal()),
    call("mean", Normal(2, 1, 4), axis=1),
    call("sum", Normal(1, 3), axis=0),
    call("sum", Normal(1, 3), axis=(0,), keepdims=True),
    call("sum", Normal(1, 3), axis=()),
    call("mean", Normal(1, 3), axis=0),
    call("mean", Normal(1, 3), axis=(0,), keepdims=True),
    call("mean", Normal(1, 3), axis=()),
    call("mean", Normal(0, 3), axis=1),
    *[call(name, Normal(1, 3), **settings) for name in ("max", "min")
      for settings in ({"axis": 0}, {"axis": (0,), "keepdims": True}, {"axis": ()})],
    *[call(name, Normal()) for name in ("max", "min")],
    *[call(name, Normal(4, 3, mean=5), **settings) for name in ("var", "std")
      for settings in ({"axis": 0}, {"correction": 1}, {"axis": (-1,), "correction": 0.5})],
    call("var", Normal()),
    call("var", Normal(0, 3), axis=1),
    call("std", Normal(0, 3), axis=1, keepdims=True),
    *[call("cumsum", Normal(2, 3, 4), *axis) for axis in ((), (0,), (1,), (-1,))],
    call("cumsum", Normal()),
    call("cumsum", Normal(2, 0), axis=1),
    call("ravel", Normal(2, 3)),
    call("ravel", Normal()),
    call("squeeze", Normal(2, 1, 3, 1)),
    call("squeeze", Normal(2, 1, 3, 1), axis=1),
    call("squeeze", Normal(2, 1, 3, 1), axis=(1, -1)),
    call("expand_dims", Normal(2, 3), 1),
    call("expand_dims", Normal(2, 3), (0, -1)),
    call("pad", Normal(2, 3), 1),
    call("pad", Normal(2, 3), (0, 2), constant_values=1.5),
    call("pad", Normal(2, 3), ((1, 0), (2, 1))),
    call("pad", Normal(0, 3), ((1, 0), (2, 1))),
    *[call("pad", Normal(3, 4), ((1, 2), (0, 3)), mode)
      for mode in ("edge", "reflect", "symmetric", "wrap")],
    call("reshape", Normal(2, 6), (3, -1)),
    call("reshape", Normal(2, 6), 12),
    call("reshape", Normal(0, 6), (0, 2, 3)),
    call("transpose", Normal(2, 3, 4)),
    call("transpose", Normal(2, 3, 4), (2, 0, 1)),
    call("swapaxes", Normal(2, 3, 4), 0, -1),
    call("broadcast_to", Normal(2, 1), (4, 2, 3)),
    call("broadcast_to", Normal(), (2,)),
    call("split", Normal(4, 6), 3, axis=1),
    call("split", Normal(4, 6), (1, 3), axis=0),
    call("split", Normal(2, 6), 2, axis=-1),
    call("split", Normal(2, 4), (3, 1), axis=-1),
    call("split", Normal(0, 2), 3),
    call("take", Normal(5, 3), ints([[0, 1], [1, 4]])),
    call("take", Normal(5, 3), 2),
    call("take", Normal(5, 3), ints([2, 0, 0]), axis=1),
    call("matmul", Normal(2, 3), Normal(3, 4)),
    call("matmul", Normal(2, 3, 4), Normal(4, 5)),
    call("matmul", Normal(2, 1, 3, 4), Normal(3, 4, 5)),
    call("matmul", Normal(3), Normal(3)),
    call("matmul", Normal(3), Normal(3, 2)),
    call("matmul", Normal(2, 3), Normal(3)),
    call("matmul", Normal(3), Normal(5, 3, 2)),
    call("matmul", Normal(5, 2, 3), Normal(3)),
    call("matmul", Normal(2, 3), Normal(5, 3, 2)),
    call("matmul", Normal(0, 3), Normal(3, 2)),
    call("matmul", Normal(2, 0), Normal(0, 3)),
    call("matmul", Normal(1, 1), Normal(1, 1)),
    *[call("einsum", letters, *[Normal(*shape) for shape in shapes])
      for letters, *shapes in PRODUCTS],
    call("linear", Normal(2, 3, 4), Normal(5, 4), Normal(5)),
    call("linear", Normal(3, 4), Normal(5, 4)),
    call("linear", Normal(4), Normal(5, 4), Normal(5)),
    call("linear", Normal(0, 4), Normal(5, 4)),
    call("mlp", Normal(2, 3, 4), Normal(5, 4), Normal(5), Normal(6, 5), Normal(6)),
    call("mlp", Normal(2, 3, 4), Normal(5, 4), Normal(5), Normal(4, 5), Normal(4), "gelu_tanh"),
    call("mlp", Normal(2, 3, 4), Normal(5, 4), Normal(5), Normal(4, 5), Normal(4), "relu2"),
    call("mlp", Normal(3, 4), Normal(5, 4), None, Normal(2, 5), None),
    call("mlp", Normal(3, 4), Normal(5, 4), None, Normal(2, 5), None, "gelu_tanh"),
    call("mlp", Normal(3, 4), Normal(5, 4), None, Normal(2, 5), None, "relu2"),
    call("mlp", Normal(4), Normal(5, 4), None, Normal(2, 5), Normal(2)),
    call("mlp", Normal(4), Normal(5, 4), Normal(5), Normal(2, 5), None, "gelu_tanh"),
    call("mlp", Normal(4), Normal(5, 4), None, Normal(2, 5), None, "relu2"),
    call("mlp", Normal(0, 4), Normal(5, 4), None, Normal(2, 5), None),
    call("mlp", Normal(0, 4), Normal(5, 4), None, Normal(2, 5), None, "gelu_tanh"),
    call("mlp", Normal(0, 4), Normal(5, 4), None, Normal(2, 5), None, "relu2"),
    call("swiglu", Normal(2, 3, 4), Normal(2, 3, 4)),
    call("swiglu", Normal(3), Normal(3)),
    call("swiglu", Normal(0, 4), Normal(0, 4)),
    call("embedding", ints([[0, 1], [1, 4]]), Normal(5, 3)),
    call("embedding_bag", ints([[0, 1, 1], [1, 4, 0]]), Normal(5, 3)),
    call("embedding_bag", ints([[[0, 1, 1], [1, 4, 0]]]), Normal(5, 3), 0.4, rng=frozen),
    call("embedding_bag", ints([3, 3]), Normal(5, 3), 1.0, rng=frozen),
    call("embedding_bag", ints([3, 3]), Normal(5, 3), 0.4),
    call("embedding_bag", ints([[], [], [], []]), Normal(5, 3)),
    call("softmax", Normal(2, 3, 5)),
    call("softmax", Normal(2, 3, 5), axis=1),
    call("softmax", Normal(3, 1)),
    call("softmax", Normal(2, 0)),
    call("softmax", Normal(0, 3)),
    call("log_softmax", Normal(2, 3, 5)),
    call("log_softmax", Normal(2, 3), axis=0),
    call("log_softmax", Normal(2, 0)),
    call("log_softmax", Normal(0, 3)),
    call("cross_entropy", Normal(4, 6), ints([0, 5, 2, 2])),
    call("cross_entropy", Normal(2, 2, 3), ints([[0, -100], [2, 1]])),
    call("cross_entropy", Normal(3, 2), ints([1, 7, 0]), ignore_index=7),
    *[call("cross_entropy", Normal(2, 2, 3), ints([[0, -100], [2, 1]]), **settings)
      for settings in LOSSES],
    *[call("nll_loss", Normal(2, 2, 3), ints([[0, -100], [2, 1]]), **settings)
      for settings in LOSSES if "label_smoothing" not in settings],
    call("nll_loss", Normal(4), np.array(3)),
    call("nll_loss", Normal(3, 2), ints([1, 7, 0]), ignore_index=7),
    *[call(name, Normal(2, 3), Positive(2, 3), *reduction)
      for name in ("mse_loss", "binary_cross_entropy_with_logits")
      for reduction in ((), ("sum",), ("none",))],
    call("mse_loss", Normal(), Normal()),
    call("mse_loss", Normal(0, 3), Normal(0, 3), "none"),
    call("binary_cross_entropy_with_logits", Normal(), Positive()),
    call("layer_norm", Normal(2, 3, 5), Normal(5), Normal(5)),
    call("layer_norm", Normal(4, 5)),
    call("layer_norm", Normal(4, 5), Normal(5)),
    call("layer_norm", Normal(0, 5), Normal(5)),
    call("layer_norm", Normal(7), Normal(7), Normal(7), eps=0.1),
    call("rms_norm", Normal(2, 3, 5), Normal(5)),
    call("rms_norm", Normal(4, 5)),
    call("rms_norm", Normal(4, 5), Normal(5), eps=0.1),
    call("dropout", Normal(4, 5), 0.3, rng=frozen),
    call("dropout", Normal(4, 5), 0.3),
    call("dropout", Normal(3), 1.0, rng=frozen),
    call("dropout", Normal(), 0.3, rng=frozen),
    call("dropout", Normal(), 1.0, rng=frozen),
    call("scaled_dot_product_attention", Normal(2, 2, 5, 4), Normal(2, 2, 5, 4), Normal(2, 2, 5, 4),
         is_causal=True),
    call("scaled_dot_product_attention", Normal(3, 4), Normal(5, 4), Normal(5, 6), scale=0.3),
    call("scaled_dot_product_attention", Normal(2, 0), Normal(3, 0), Normal(3, 4)),
    call("scaled_dot_product_attention", Normal(2, 3), Normal(3, 3), Normal(3, 0)),
    call("scaled_dot_product_attention", Normal(2, 3), Normal(3, 3), Normal(3, 2), dropout_p=1.0,
         rng=frozen),
    call("scaled_dot_product_attention", Normal(2, 3, 5, 4), Normal(2, 3, 7, 4),
         Normal(2, 3, 7, 2)),
    call("scaled_dot_product_attention", Normal(4, 5, 4), Normal(4, 3, 4), Normal(4, 3, 2),
         is_causal=True),
    call("scaled_dot_product_attention", Normal(2, 1, 3, 4, 2), Normal(2, 1, 3, 4, 2),
         Normal(2, 1, 3, 4, 2)),
    call("self_attention", Normal(2, 5, 12), 2, is_causal=True),
    call("self_attention", Normal(4, 6), 1),
    call("self_attention", Normal(2, 1, 30, 12), 4, dropout_p=0.3, rng=frozen),
    call("self_attention", Normal(2, 30, 16), 4, 2, is_causal=True, dropout_p=0.3, rng=frozen),
    call("self_attention", Normal(30, 16), 2, 1, is_causal=True),
    call("self_attention", Normal(2, 30, 20), 6, 2, is_causal=True, dropout_p=0.3, rng=frozen),
    call("self_attention", Normal(0, 5, 16), 4, 2),
    call("self_attention", Normal(5, 24), 6, 3),
    call("rotary", Normal(2, 5, 12), 3, 4),
    call("rotary", Normal(2, 3, 5, 11), 2, 4),
    call("rotary", Normal(70, 2), 1, 2, base=10.0),
    call("rotary", Normal(2, 5, 12), 3, 4, first=7),
    call("rotary", Normal(2, 0, 4), 2, 2),
    call("rotary", Normal(2, 5, 12), 2, 6, scaling=mg.ops.RotaryScaling(4.0, 20)),
    call("qk_norm", Normal(2, 5, 12), 2, 6, base=10.0, scaling=mg.ops.RotaryScaling(4.0, 20)),
    call("rotary", Normal(2, 5, 12), 3, 4, base=10.0),
    call("qk_norm", Normal(2, 5, 12), 4, 3),
    call("qk_norm", Normal(2, 3, 5, 11), 2, 4, base=10000.0),
    call("qk_norm", Normal(70, 2), 1, 2, base=10.0, eps=0.1),
    call("qk_norm", Normal(2, 5, 12), 3, 4, base=10.0, first=7),
    call("qk_norm", Normal(2, 0, 4), 2, 2),
    call("qk_norm", Normal(3, 5), 5, 1),
    *[call(name, Normal(*shape), Normal(*other))
      for name in ("add", "subtract", "multiply")
      for shape, other in BROADCAST],
    *[call("divide", Normal(*shape), Positive(*other)) for shape, other in BROADCAST],
    *[call(name, Normal(2, 3, 4), **settings) for name in ("sum", "mean", "var", "std")
      for settings in REDUCED],
    *[call(name, APART, **settings) for name in ("max", "min") for settings in REDUCED],
    call("power", ZERO_AND_OTHERS, 0),
    call("power", ZERO_AND_OTHERS, LEFT_OF_THREE),
    call("sigmoid", Normal(2, 3, std=5)),
    *[call(name, FAR)
      for name in ("sigmoid", "silu", "gelu", "tanh", "relu", "softmax", "log_softmax", "softplus",
                   "leaky_relu", "abs")],
    call("binary_cross_entropy_with_logits", FAR, np.array([[0.0, 1.0, 0.3], [0.0, 1.0, 0.3]])),
    call("relu", APART - 1.5),
    *[call(name, APART, APART[::-1].copy()) for name in ("maximum", "minimum")],
    call("where", np.eye(2, 3, dtype=bool), Normal(2, 3), Normal(2, 3)),
    call("where", LEFT_OF_THREE, Normal(2, 1), 0.0),
    call("concatenate", [Normal(2, 3), Normal(1, 3)]),
    call("concatenate", [Normal(2, 3), Normal(2, 0), Normal(2, 2)], axis=-1),
    call("concatenate", [Normal(2, 3), Normal(), Normal(1, 2)], axis=None),
    call("stack", [Normal(2, 3), Normal(2, 3), Normal(2, 3)], axis=1),
    call("stack", [Normal(2, 3), Normal(2, 3), Normal(2, 3)], axis=-3),
    call("stack", [Normal(2, 3), Normal(2, 3), Normal(2, 3)], axis=-1),
    call("stack", [Normal(3)], axis=-1),
    *[call("split", Normal(4, 3), places) for places in PLACES],
    *[call("take", Normal(5, 3), index) for index in INDICES],
    call("embedding", np.array(2), Normal(5, 3)),
    call("embedding_bag", np.zeros((0, 2), int), Normal(5, 3)),
    call("cross_entropy", Normal(4), np.array(3)),
    call("dropout", Normal(3), np.float64(0.3), rng=frozen),
    call("scaled_dot_product_attention", Normal(2, 4), Normal(2, 4), Normal(2, 4),
         scale=np.float64(0.3)),
    call("scaled_dot_product_attention", Normal(2, 3, 4), Normal(2, 5, 4), Normal(2, 5, 4),
         np.tri(3, 5, 1, dtype=bool)),
    call("scaled_dot_product_attention", *[Normal(1, 2, 60, 3)] * 3,
         Constant(Normal(60, 60, std=0.1)), is_causal=True, dropout_p=0.3, rng=frozen),
]


def is_floats(a):
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def floats(args):
    """The float arrays among the arguments, in lists too."""
    return [b for a in args for b in (floats(a) if isinstance(a, list) else [a]) if is_floats(b)]


def applied(name, args, settings, tensors):
    """The op with tensors in place of its float arrays, with several values joined into one and a
    generator made anew."""
    remaining = iter(tensors)

    def argument(a):
        if isinstance(a, list):
            return [argument(part) for part in a]
        if is_floats(a):
            return next(remaining)
        return a() if a is frozen else a
    out = mg.OPS[name](*argument([*args]), **{key: argument(a) for key, a in settings.items()})
    if isinstance(out, list):
        return mg.concatenate([part.reshape(-1) for part in out])
    return out


def leaves(args, prepare=np.array):
    """A Tensor that requires a gradient for each float array among the arguments."""
    return [Tensor(prepare(a), requires_grad=True) for a in floats(args)]


def computed(name, args, settings, dtype, layout):
    """The value and the gradients of an example."""
    tensors = leaves(args, lambda a: layout(a.astype(dtype)))
    out = applied(name, args, settings, tensors)
    out.backward(layout(np.cos(np.arange(out.size)).reshape(out.shape).astype(dtype)))
    return [out.data, *[x.grad for x in tensors]]


def in_strides(a):
    """An equal array, with strides that no fresh array has."""
    room = np.zeros(tuple(2 * n for n in a.shape[::-1]), a.dtype)
    view = room[(slice(None, None, 2),) * a.ndim + (Ellipsis,)].T
    view[...] = a
    return view


def in_another_layout(a):
    """The same, read-only."""
    view = in_strides(a)
    view.flags.writeable = False
    return view
