"""Reverse-mode differentiation: Tensor, Node, the @op decorator, backward.

The way of a value: y = mg.exp(x) calls exp on x.data, an array.  The op returns its value and, for
each argument, a vjp (vector-Jacobian product): the function from d(loss)/d(value) to
d(loss)/d(argument).  @op wraps the value in a Tensor and, if an argument requires a gradient, gives
it a Node, which holds the vjps and the Nodes of the arguments.  loss.backward() starts with 1 at
the loss.  It takes the youngest Node that waits, calls its vjps, and adds what they return to the
gradients of the arguments' Nodes.  At the end only the leaves are left; their gradients are added
to `.grad`.

This file knows NumPy arrays and no particular op.
"""
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from heapq import heappop, heappush
from itertools import chain, count, repeat, zip_longest
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from minigrad.watching import tell, watchers

OPS: dict[str, Callable] = {}       # name -> op; the gradient check reads it
Array = Any     # an argument of an op: a Tensor or an ndarray; a number or list is made an array
Operand = Array | float     # the same, but a number stays one, whose type gives way to an array's
PLAIN = {Array: (int, float, complex, list, tuple), Operand: (list, tuple)}     # made arrays
NUMBERS = "?bhilqBHILQfd"   # the types of a Tensor, by NumPy's characters

_births = count()
_paused = ContextVar("paused", default=0)       # how many blocks of no_grad are open


class Node:
    """A place in the graph.  It holds no value, only where a gradient goes next."""
    __slots__ = ("op", "shape", "dtype", "parents", "vjps", "birth", "grad")

    def __init__(self, op, shape, dtype, parents=None, vjps=None):
        self.op = op                    # name of the op that made it; "leaf" for an input
        self.shape = shape
        self.dtype = dtype
        self.parents = parents          # nodes of the inputs, None for a constant
        self.vjps = vjps                # one function per input, or one for all; None once used
        self.birth = next(_births)      # a node is younger than everything that it was made from
        self.grad = None                # filled for leaves only: an array, or Rows of it


class Tensor:
    """A NumPy array and, if it requires a gradient, its place in the graph.

    Parameters
    ----------
    data : anything that `np.asarray` takes; an array is not copied.
    requires_grad : whether `backward` fills `.grad`; the data must then be floats.
    """
    __slots__ = ("_data", "node")
    __array_ufunc__ = None              # so that ndarray + Tensor calls Tensor.__radd__

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            data = data._data
        array = np.asarray(data)
        if array.dtype.char not in NUMBERS:
            raise _unfit(array.dtype)
        self._data = array
        self.node = None
        if requires_grad:
            if array.dtype.kind != "f":
                raise TypeError(f"only floats have gradients, and this is {_brief(array)}; "
                                "convert it first, for instance with array.astype(np.float32)")
            self.node = Node("leaf", array.shape, array.dtype)

    @property
    def data(self) -> np.ndarray:
        """The values.  What takes their place is made an array, as by the constructor."""
        return self._data

    @data.setter
    def data(self, values):
        self._data = Tensor(values)._data

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    requires_grad = property(lambda self: self.node is not None)

    @property
    def grad(self) -> np.ndarray | None:
        """d(loss)/d(self), summed over the backward passes since it was last None; leaves only.
        Reading it makes a whole array of a gradient that was kept as `Rows`."""
        if self.node is None or self.node.grad is None:
            return None
        self.node.grad = np.asarray(self.node.grad)
        return self.node.grad

    @grad.setter
    def grad(self, value):
        if self.node is None or self.node.op != "leaf":
            raise ValueError(f"{self!r} is no leaf: a gradient is kept only where "
                             "requires_grad=True was given")
        if value is not None:           # optimisers read it as numbers of the data's type
            value = np.asarray(value)
            if value.shape != self.node.shape or value.dtype != self.node.dtype:
                raise ValueError("a gradient has the shape and type that its tensor was made with, "
                                 f"{self.node.dtype}{list(self.node.shape)}, and this is "
                                 f"{_brief(value)}")
            value = np.require(value, requirements="W")     # clipping writes into it
        self.node.grad = value

    def __repr__(self) -> str:
        kind = "constant" if self.node is None else self.node.op
        data = _brief(self.data) if self.size > 20 else self.data
        return f"Tensor({data}, {kind})"

    def item(self) -> float:
        """Return the single number that the tensor holds."""
        return self.data.item()

    def detach(self) -> "Tensor":
        """Return a constant with the same data."""
        return Tensor(self.data)

    def backward(self, g: Any = None) -> None:
        """Add d(self)/d(leaf) to the `.grad` of every leaf below, and free the graph.

        Parameters
        ----------
        g : the gradient to start from, of this tensor's shape; optional for a single number.

        Raises
        ------
        ValueError : nothing below requires a gradient, or `g` is missing or has another shape.
        RuntimeError : an earlier backward has freed this graph or a part of it.
        """
        if self.node is None:
            raise ValueError(f"{self!r} depends on nothing that requires a gradient")
        if g is None:
            if self.data.size != 1:
                raise ValueError(f"{_brief(self.data)} is not a single number: say which gradient "
                                 "to start from, as in y.backward(g), or sum it first")
            g = np.ones_like(self.data)
        g = Tensor(g).data
        if g.shape != self.shape:
            raise ValueError(f"the gradient to start from has shape {list(g.shape)}, "
                             f"the tensor {list(self.shape)}")
        leaves = _run_backward(self.node, g.astype(self.dtype, copy=False))
        for node, g in leaves:          # only now, so that an error changes no gradient
            node.grad = g if node.grad is None else np.asarray(np.add(node.grad, g))


def op(f: Callable | None = None, *, register: bool = True) -> Callable:
    """Make `f(*arrays, settings) -> value, vjps` a differentiable op on Tensors, and list it in OPS
    (not with `@op(register=False)`).

    `vjps` has one function for each array, in the order of the arguments, from d(loss)/d(value) to
    d(loss)/d(argument); None where there is no derivative.  Where arguments share work, `vjps` is
    one function, which returns a tuple of all gradients.  A list or tuple in which there is a
    Tensor is as many arrays as it has parts.  A vjp may return

    - an array of the argument's shape, or of the shape to which NumPy broadcast the argument (it is
      summed back, once for all ops): g itself, a view of g, or a new array, which must not be kept;
    - or, where most of the gradient is zero, `Added` with the function that adds it in place.

    An op with several values returns a list of them, and a list of their vjps.
    """
    if f is None:
        return partial(op, register=register)
    name = f.__name__
    signature = inspect.signature(f).replace(return_annotation=Tensor)
    plain = [PLAIN.get(p.annotation, ()) for p in signature.parameters.values()]

    @wraps(f)
    def on_tensors(*args, **settings):
        started = perf_counter()
        arrays = args
        try:
            if settings:                # arrays may be given by keyword, too
                bound = signature.bind(*args, **settings)
                bound.apply_defaults()
                args, settings = bound.args, bound.kwargs
            arrays, parents = _unwrapped(args, plain)
            made = f(*arrays, **settings)
            if type(made) is not tuple:
                raise TypeError("an op returns its value and its vjps, as in y, (dx,), and this "
                                f"returned {_brief(made)}")
            several = type(made[0]) is list
            values = zip(*made, strict=True) if several else [made]
            out = [_record(name, value, vjps, parents) for value, vjps in values]
        except Exception as error:
            if "unexpected keyword" in str(error):
                takes = ", ".join(signature.parameters).replace("axis", "axis (PyTorch's dim)")
                error.args = f"{error}; {name} takes {takes}",
            error.add_note(f"in {name}({', '.join(map(_brief, arrays))})")
            raise
        if watchers.get():
            tell(name, "forward", started, None, args, out)
        return out if several else out[0]

    on_tensors.__signature__ = signature
    if register:
        # Defining an op again in its own module, as in a notebook, replaces it.
        if name in OPS and OPS[name].__module__ != f.__module__:
            raise ValueError(f"there is already an op called {name}, in {OPS[name].__module__}")
        OPS[name] = on_tensors
    return on_tensors


def _unwrapped(args, plain):
    """Return the arguments of an op as arrays, and the node of each, None for a constant.  `plain`
    has for each argument the types that are made arrays."""
    arrays = []
    parents = []
    for arg, accepted in zip(args, chain(plain, repeat(()))):
        if isinstance(arg, accepted):
            arg = np.asarray(arg)
        several = isinstance(arg, (list, tuple)) and Tensor in map(type, arg)
        parts = arg if several else [arg]
        parents += [part.node if isinstance(part, Tensor) else None for part in parts]
        data = [part._data if isinstance(part, Tensor) else part for part in parts]
        arrays.append(type(arg)(data) if several else data[0])
    return arrays, parents


def _record(name, value, vjps, parents):
    """Return the value as a Tensor, with a node if one of its parents can get a gradient."""
    out = Tensor(value)
    array = out._data
    if _paused.get() or array.dtype.kind != "f" or not any(parents):
        return out
    if type(vjps) in (tuple, list):         # keep only the vjps that will be called
        if any(parents[len(vjps):]):
            raise ValueError(f"{name} has {len(vjps)} vjps, and none for a later argument "
                             "that requires a gradient")
        needed = [pair for pair in zip(parents, vjps) if None not in pair]
        if not needed:
            return out
        parents, vjps = zip(*needed)
    elif not callable(vjps):
        raise TypeError(f"the vjps of {name} are a function, or a tuple of one for each argument, "
                        f"and these are {_brief(vjps)}")
    out.node = Node(name, array.shape, array.dtype, parents, vjps)
    return out


def timed(part: str) -> Callable:
    """Tell watchers how long each call of a function takes: a part of a training step that calls no
    op."""
    def decorate(f):
        @wraps(f)
        def timed_part(*args, **settings):
            started = perf_counter()
            value = f(*args, **settings)
            if watchers.get():
                tell(part, "part", started)
            return value
        return timed_part
    return decorate


def _run_backward(root, g):
    """Send g from the root to the leaves; return (leaf, gradient) pairs and free the graph."""
    sums = {root: (g, False)}           # node -> its gradient so far, and whether the engine has
    waiting = [(-root.birth, root)]     # made this array, as a sum, so that it may write into it
    leaves = []
    held = {id(g)}
    watched = bool(watchers.get())
    while waiting:                      # youngest first: every user of a node is younger and done,
        _, node = heappop(waiting)      # so the gradient taken here is a finished sum
        g, made_here = sums.pop(node)
        if node.op == "leaf":
            leaves.append((node, g if made_here else _owned(g, held, watched)))
            continue
        if node.vjps is None:
            raise RuntimeError(f"the graph below this {node.op} was freed by an earlier "
                               "backward(); compute the value again, or sum the losses and go "
                               "back once")
        started = perf_counter()
        try:
            parts = _parts_of(node, g)
            for parent, dx in parts:
                if parent not in sums:
                    heappush(waiting, (-parent.birth, parent))
                sums[parent] = _sum_of(parent, dx, *sums.get(parent, (None, False)))
        except Exception as error:
            error.add_note(f"in the gradient of {node.op}, from {_brief(g)}")
            raise
        node.vjps = node.parents = None     # and with them the arrays that the vjps kept
        if watched:
            tell(node.op, "backward", started, node, [g], parts)
        del parts
    return leaves


def _parts_of(node, g):
    """Return the node of each input with its part of the gradient: an array of its shape and type,
    or `Added`."""
    vjps = node.vjps
    parts = vjps(g) if callable(vjps) else [vjp(g) for vjp in vjps]
    if not isinstance(parts, (tuple, list)):
        raise TypeError("one vjp for all arguments returns a tuple of gradients, not one array")
    found = []
    for parent, dx in zip_longest(node.parents, parts):
        if parent is None:
            continue
        if dx is None:
            raise ValueError("there is no vjp for an argument that requires a gradient")
        if not isinstance(dx, Added):
            dx = unbroadcast(np.asarray(dx), parent.shape).astype(parent.dtype, copy=False)
        found.append((parent, dx))
    return found


def _sum_of(parent, dx, total, writable):
    """Return the gradient that a parent has so far, None at first, plus dx; and whether the engine
    has made that sum, so that it may write into it."""
    if isinstance(dx, Added):
        return dx.to(parent, total, writable), True
    if total is None:
        return dx, False
    if writable and not isinstance(total, Rows):
        total += dx
        return total, True
    return np.asarray(np.add(total, dx)), True      # NumPy makes a scalar of two 0-d arrays


def _owned(g, held, watched):
    """Return a gradient for a leaf to keep and others to write into: g itself, if no other leaf, no
    watcher and no caller holds its memory, else a copy."""
    if watched or g.base is not None or not g.flags.writeable or id(g) in held:
        return g.copy()
    held.add(id(g))
    return g


def unbroadcast(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum g over the axes along which NumPy broadcast an array of `shape`."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, g.shape[extra:])):
        raise ValueError(f"the vjp gave {list(g.shape)} for an argument of shape {list(shape)}")
    padded = (1,) * extra + shape
    repeated = tuple(axis for axis, n in enumerate(padded) if n == 1)
    return g.sum(axis=repeated, keepdims=True).reshape(shape)


class Added(NamedTuple):
    """A sparse gradient: a function that adds it to a dense array, in place.

    If it adds to rows of a table, `ids` are their numbers.  Then add(array, places) adds to rows
    with other numbers, `places`, instead.
    """
    add: Callable[..., None]
    ids: np.ndarray | None = None

    def to(self, parent: Node, total: "np.ndarray | Rows | None", writable: bool
           ) -> "np.ndarray | Rows":
        """Return the sum with the gradient that a parent has so far, which is written into if that
        is allowed.  The first sum of a leaf of which few rows were read is kept as `Rows`."""
        if total is None:
            if self.ids is not None and parent.op == "leaf" and self.ids.size < parent.shape[0]:
                return self._rows(parent)
            total = np.zeros(parent.shape, parent.dtype)
        elif isinstance(total, Rows) or not writable or not total.flags.c_contiguous:
            total = np.array(total, order="C")      # as kernels write into it
        self.add(total)
        return total

    def _rows(self, table):
        """Return the rows of a table's gradient that something is added to."""
        read = np.bincount(self.ids.reshape(-1) + 1, minlength=table.shape[0] + 1) > 0
        places = np.cumsum(read, dtype=np.int64)
        values = np.zeros((places[-1], *table.shape[1:]), table.dtype)
        self.add(values, places[self.ids])
        return Rows(values, places)


class Rows(NamedTuple):
    """The gradient of a table with V rows, most of them zero: only the rows that may not be.

    Row v of the table is values[places[v]], if places[v + 1] is larger; else it is zero.
    """
    values: np.ndarray      # the rows that are kept, (N, ...)
    places: np.ndarray      # (V + 1,): how many rows are kept before each row, and in all

    dtype = property(lambda self: self.values.dtype)
    shape = property(lambda self: (len(self.places) - 1, *self.values.shape[1:]))   # of the table
    size = property(lambda self: math.prod(self.shape))
    length = property(lambda self: math.prod(self.shape[1:]))

    def __array__(self, *dtype, **copy) -> np.ndarray:
        """Return the table."""
        table = np.zeros(self.shape, self.dtype)
        table[np.diff(self.places) > 0] = self.values
        return table


def one_type(*arrays: np.ndarray | None) -> Sequence[np.ndarray | None]:
    """Cast the arrays (None stays None) to the float type to which NumPy promotes them; integers
    alone become float64."""
    dtype = np.result_type(*{a.dtype for a in arrays if a is not None})
    if dtype.char not in NUMBERS:
        raise _unfit(dtype)
    if dtype.kind != "f":
        dtype = np.dtype(np.float64)
    return [None if a is None else a.astype(dtype, copy=False) for a in arrays]


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute values without recording the graph, in this thread or task."""
    _paused.set(_paused.get() + 1)
    try:
        yield
    finally:                            # blocks may end in another order than they began in
        _paused.set(max(_paused.get() - 1, 0))


def _unfit(dtype):
    return TypeError(f"a Tensor holds numbers (float32, float64, integers or bools), not {dtype}: "
                     "convert it first, for instance with array.astype(np.float32)")


def _brief(a):
    return f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else repr(a)
