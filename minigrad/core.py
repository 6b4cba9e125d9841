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
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, wraps
from heapq import heappop, heappush
from itertools import count, zip_longest
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

OPS: dict[str, Callable] = {}       # name -> op; the gradient check reads it

Array = Any     # an argument of an op: a Tensor, an ndarray, or a number or list, made an array
Operand = Array | float     # the same, but a number stays one, whose type gives way to an array's
Arrays = list[Array]
UNKNOWN = inspect.Parameter.empty
OF_ARRAYS = Array, Operand, Arrays, object, UNKNOWN     # type hints of what is no mere setting
Rule = tuple    # what a function under @op returns: its value and its vjps
NUMBERS = "?bhilqBHILQfd"   # the types of a Tensor, by NumPy's characters

_births = count()
_paused = ContextVar("paused", default=0)           # how many blocks of no_grad are open
_watchers = ContextVar("watchers", default=())      # called after every op; see watch_ops


@dataclass(frozen=True, slots=True)
class Together:
    """One vjp for all arguments of an op, which share work: it returns a gradient for each."""
    vjp: Callable[[np.ndarray], tuple]


@dataclass(frozen=True, slots=True)
class Added:
    """A gradient that is mostly zero, as the function that adds it to an array in place.

    If it adds to rows of a table, `ids` are their numbers.  Then add(array, places) adds to rows
    with other numbers, `places`, instead.
    """
    add: Callable[..., None]
    ids: np.ndarray | None = None


class Node:
    """A place in the graph.  It holds no value, only where a gradient goes next."""
    __slots__ = ("op", "shape", "dtype", "parents", "vjps", "birth", "grad")

    def __init__(self, op, value, parents, vjps):
        self.op = op                    # name of the op that made it; "leaf" for an input
        self.shape = value.shape
        self.dtype = value.dtype
        self.parents = parents          # nodes of the inputs, None for a constant
        self.vjps = vjps                # one function per input, or Together; None once used
        self.birth = next(_births)      # a node is younger than everything that it was made from
        self.grad = None                # filled for leaves only: an array, or Rows of it

    def __reduce__(self):
        """Unpickled, a leaf is a new leaf, without a gradient, as in PyTorch."""
        if self.op != "leaf":
            raise TypeError(f"a copy of a result, here of {self.op}, would pass no gradient on: "
                            "copy tensor.detach(), or copy the leaves and compute it again")
        return _new_leaf, (self.shape, self.dtype)

    def __deepcopy__(self, memo):
        """Copied, a leaf is a new leaf, with a copy of the gradient, as in PyTorch."""
        make, settings = self.__reduce__()
        node = make(*settings)
        node.grad = deepcopy(self.grad, memo)
        return node


def _new_leaf(shape, dtype):
    return Node("leaf", np.broadcast_to(np.empty((), dtype), shape), None, None)


class Tensor:
    """A NumPy array and, if it requires a gradient, its place in the graph.

    Parameters
    ----------
    data : anything that `np.asarray` takes; an array is not copied.
    requires_grad : whether `backward` fills `.grad`; the data must then be floats.
    """
    __slots__ = ("data", "node")
    __array_ufunc__ = None              # so that ndarray + Tensor calls Tensor.__radd__

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            data = data.data
        self.data = np.asarray(data)
        if self.data.dtype.char not in NUMBERS:
            raise _unfit(self.data.dtype)
        self.node = None
        if requires_grad:
            if self.data.dtype.kind != "f":
                raise TypeError(f"only floats have gradients, and this is {_brief(self.data)}; "
                                "convert it first, for instance with array.astype(np.float32)")
            self.node = Node("leaf", self.data, None, None)

    shape = property(lambda self: self.data.shape)
    dtype = property(lambda self: self.data.dtype)
    ndim = property(lambda self: self.data.ndim)
    size = property(lambda self: self.data.size)
    requires_grad = property(lambda self: self.node is not None)

    @property
    def grad(self) -> np.ndarray | None:
        """d(loss)/d(self), summed over the backward passes since it was last None; leaves only.
        Reading it makes a whole array of a gradient that was kept as `Rows`."""
        if self.node is None:
            return None
        self.node.grad = _whole(self.node.grad)
        return self.node.grad

    @grad.setter
    def grad(self, value):
        if self.node is None or self.node.op != "leaf":
            raise ValueError(f"{self!r} is no leaf: a gradient is kept only where "
                             "requires_grad=True was given")
        if value is not None:           # optimisers read it as numbers of the data's type
            value = np.asarray(value)
            if (value.shape, value.dtype) != (self.shape, self.dtype):
                raise ValueError(f"a gradient has its tensor's shape and type, {_brief(self.data)},"
                                 f" and this is {_brief(value)}")
            value = np.require(value, requirements="W")     # clipping writes into it
        self.node.grad = value

    def __array__(self, *dtype, **copy):
        raise TypeError("NumPy cannot differentiate; take the op from minigrad, or the array with "
                        "tensor.data")

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        kind = "constant" if self.node is None else self.node.op
        data = _brief(self.data) if self.size > 20 else self.data
        return f"Tensor({data}, {kind})"

    def __bool__(self) -> bool:
        return bool(self.data)

    def __float__(self) -> float:
        return float(self.item())

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
            node.grad = g if node.grad is None else np.asarray(_whole(node.grad) + _whole(g))


def op(f: Callable | None = None, *, register: bool = True) -> Callable:
    """Make `f(*arrays, settings) -> value, vjps` a differentiable op on Tensors, listed in OPS.

    `vjps` has one function for each array, in the order of the arguments.  It maps d(loss)/d(value)
    to d(loss)/d(argument); it is None where there is no derivative.  Where arguments share work,
    `vjps` is one function that returns all gradients, see `Together`.  An argument may be a list of
    arrays; each then counts as one.  A vjp may return

    - an array of the argument's shape, or of the shape to which NumPy broadcast the argument (it is
      summed back here, once for all ops): g itself, a view of g, or a new array, which may be
      written into and must not be kept;
    - or, where most of the gradient is zero, `Added` with the function that adds it in place to a
      given array.

    An op with several values returns a list of them, and a list of their vjps.  With
    `@op(register=False)` it is not listed.
    """
    if f is None:
        return partial(op, register=register)
    name, signature = f.__name__, inspect.signature(f).replace(return_annotation=Tensor)
    hints = [p.annotation if p.annotation in OF_ARRAYS else None
             for p in signature.parameters.values()]
    numbers_at = [i for i, hint in enumerate(hints) if hint is Array]

    @wraps(f)
    def on_tensors(*args, **settings):
        arrays, watchers = args, _watchers.get()
        try:
            if settings:
                args, settings = _by_position(signature, args, settings)
            arrays, parents = _unwrapped(args, hints, numbers_at)
            if watchers:
                started = perf_counter()
            made = f(*arrays, **settings)
            if watchers:
                seconds = perf_counter() - started
            if type(made) is not tuple:
                raise TypeError("an op returns its value and its vjps, as in y, (dx,), and this "
                                f"returned {_brief(made)}")
            value, vjps = made
            if type(value) is list:
                out = [_record(name, *each, parents) for each in zip(value, vjps, strict=True)]
            else:
                out = _record(name, value, vjps, parents)
        except Exception as error:
            _explain(error, name, signature, arrays)
            raise
        if watchers:
            _tell(watchers, Event(name, "forward", seconds, None, list(args),
                                  out if isinstance(out, list) else [out]))
        return out

    on_tensors.__signature__ = signature
    if register:
        # Defining an op again in its own module, as in a notebook, replaces it.
        if name in OPS and OPS[name].__module__ != f.__module__:
            raise ValueError(f"there is already an op called {name}, in {OPS[name].__module__}")
        OPS[name] = on_tensors
    return on_tensors


def _by_position(signature, args, settings):
    """Return arguments and settings, with arrays that were given by keyword as arguments."""
    if args and not any(isinstance(v, (Tensor, list, tuple)) for v in settings.values()):
        return args, settings
    bound = signature.bind(*args, **settings)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _explain(error, name, signature, arrays):
    """Let an error of an op say what the op takes, and what it was given."""
    if "unexpected keyword" in str(error):
        error.args = f"{error}; {name} takes {', '.join(signature.parameters)}",
    error.add_note(f"in {name}({', '.join(map(_brief, arrays))})")


def _unwrapped(args, hints, numbers_at):
    """Return the arguments of an op as arrays, and the node of each Tensor, None for a constant;
    each part of a list of arrays has a node."""
    arrays, parents = [], []
    for arg in args:
        if isinstance(arg, Tensor):
            arrays.append(arg.data)
            parents.append(arg.node)
        elif isinstance(arg, (list, tuple)) and len(arrays) < len(hints):
            arg, nodes = _of_list(arg, hints[len(arrays)])
            arrays.append(arg)
            parents.extend(nodes)
        else:
            if (numbers_at and len(arrays) in numbers_at
                    and isinstance(arg, (int, float, complex))):
                arg = np.asarray(arg)
            arrays.append(arg)
            parents.append(None)
    return arrays, parents


def _of_list(arg, hint):
    """Return a list as an op takes an argument of this type hint, and the nodes of its parts."""
    if hint is None:
        return arg, [None]
    nodes = [part.node if isinstance(part, Tensor) else None for part in arg]
    if hint is Arrays:
        return [part.data if isinstance(part, Tensor) else np.asarray(part) for part in arg], nodes
    if not any(isinstance(part, Tensor) for part in arg):
        return arg if hint is object or hint is UNKNOWN else np.asarray(arg), [None]
    if hint is Array or hint is Operand:
        raise TypeError("this argument is one array, and a list of Tensors is several: join them "
                        "by mg.stack or mg.concatenate")
    return type(arg)(part.data if isinstance(part, Tensor) else part for part in arg), nodes


def _record(name, value, vjps, parents):
    """Return the value as a Tensor, with a node if one of its parents can get a gradient."""
    out = Tensor(value)
    if _paused.get() or out.data.dtype.kind != "f" or not any(parents):
        return out
    if type(vjps) in (tuple, list):         # keep only the vjps that will be called
        if any(parents[len(vjps):]):
            raise ValueError(f"{name} has {len(vjps)} vjps, and none for a later argument "
                             "that requires a gradient")
        needed = [(parent, vjp) for parent, vjp in zip(parents, vjps)
                  if parent is not None and vjp is not None]
        if not needed:
            return out
        parents, vjps = zip(*needed)
    elif callable(vjps):
        vjps = Together(vjps)
    elif not isinstance(vjps, Together):
        raise TypeError(f"the vjps of {name} are a function, or a tuple of one for each argument, "
                        f"and these are {_brief(vjps)}")
    out.node = Node(name, out.data, parents, vjps)
    return out


def _run_backward(root, g):
    """Send g from the root to the leaves; return (leaf, gradient) pairs and free the graph."""
    sums = {root: (g, False)}           # node -> its gradient so far, and whether that is owned:
    waiting = [(-root.birth, root)]     # nothing else holds the array, so it may be written into
    leaves, watchers = [], _watchers.get()
    while waiting:                      # youngest first: every user of a node is younger and done,
        _, node = heappop(waiting)      # so the gradient taken here is a finished sum
        g, owned = sums.pop(node)
        if node.op == "leaf":
            leaves.append((node, g if owned else g.copy()))
            continue
        if node.vjps is None:
            raise RuntimeError(f"the graph below this {node.op} was freed by an earlier "
                               "backward(); compute the value again, or sum the losses and go "
                               "back once")
        started = perf_counter()
        sent = []
        try:
            for parent, dx, dx_owned in _pull(node, g):
                if watchers:
                    sent.append((parent, dx))
                    dx_owned = False    # the watcher may keep it
                if parent not in sums:
                    heappush(waiting, (-parent.birth, parent))
                sums[parent] = _add(*sums.get(parent, (None, False)), dx, dx_owned, parent)
        except Exception as error:
            error.add_note(f"in the gradient of {node.op}, from {_brief(g)}")
            raise
        node.vjps = node.parents = None     # and with them the arrays that the vjps kept
        if watchers:
            _tell(watchers, Event(node.op, "backward", perf_counter() - started, node, [g], sent))
    return leaves


def _pull(node, g):
    """Yield, for each input, its node, its gradient and whether nothing else holds that array."""
    vjps = node.vjps
    parts = vjps.vjp(g) if isinstance(vjps, Together) else [vjp(g) for vjp in vjps]
    if not isinstance(parts, (tuple, list)):
        raise TypeError("one vjp for all arguments returns a tuple of gradients, not one array")
    memories = [id(_memory(x)) for x in (*parts, g)]
    for parent, dx in zip_longest(node.parents, parts):
        if parent is None:
            continue
        if dx is None:
            raise ValueError("there is no vjp for an argument that requires a gradient")
        if isinstance(dx, Added):
            yield parent, dx, True
            continue
        if callable(dx):
            raise TypeError("a vjp returns an array, or mg.Added, not a function")
        # Owned: dx is all of an array that is neither g nor another part.
        owned = memories.count(id(_memory(dx))) == 1 and _is_whole(dx)
        if type(dx) is not np.ndarray or dx.shape != parent.shape or dx.dtype != parent.dtype:
            cast = unbroadcast(np.asarray(dx), parent.shape).astype(parent.dtype, copy=False)
            owned = owned or cast is not dx
            dx = cast
        yield parent, dx, owned


def _memory(x):
    """Return the array whose memory x is in: x itself, or the one that it is a view of."""
    base = getattr(x, "base", None)
    return x if base is None else base


def _is_whole(x):
    """Whether x owns its memory, or is all of an array in another shape."""
    return _memory(x) is x or x.flags.carray and x.size == getattr(x.base, "size", None)


def _add(total, owned, dx, dx_owned, parent):
    """Return total + dx, and whether nothing else holds the sum.  The total is None at first."""
    if isinstance(dx, Added):
        if (total is None and parent.op == "leaf" and dx.ids is not None
                and dx.ids.size < parent.shape[0]):
            return _rows(dx, parent), True
        total = _whole(total)
        if not (owned and total.flags.c_contiguous):        # as kernels write into it
            total = np.zeros(parent.shape, parent.dtype) if total is None else total.copy()
        dx.add(total)
        return total, True
    if total is None:
        return dx, dx_owned
    total = _whole(total)
    if not (owned or dx_owned):
        return np.asarray(total + dx), True     # NumPy makes a scalar of two 0-d arrays
    total, part = (total, dx) if owned else (dx, total)
    total += part
    return total, True


class Rows(NamedTuple):
    """The gradient of a table with V rows, most of them zero: only the rows that may not be.

    Row v of the table is values[places[v]], if places[v + 1] is larger; else it is zero.
    """
    values: np.ndarray      # the rows that are kept, (N, ...)
    places: np.ndarray      # (V + 1,): how many rows are kept before each row, and in all

    dtype = property(lambda self: self.values.dtype)
    shape = property(lambda self: (len(self.places) - 1, *self.values.shape[1:]))   # of the table
    length = property(lambda self: math.prod(self.values.shape[1:]))
    size = property(lambda self: (len(self.places) - 1) * self.length)      # of the table

    def __array__(self, *dtype, **copy) -> np.ndarray:
        """Return the table."""
        table = np.zeros((len(self.places) - 1, *self.values.shape[1:]), self.dtype)
        table[np.diff(self.places) > 0] = self.values
        return table


def _rows(added, table):
    """Return the rows of a table's gradient that something is added to."""
    kept = np.zeros(table.shape[0], bool)
    kept[added.ids] = True
    places = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=places[1:])
    values = np.zeros((places[-1], *table.shape[1:]), table.dtype)
    added.add(values, places[added.ids])
    return Rows(values, places)


def _whole(g):
    return np.asarray(g) if isinstance(g, Rows) else g


def unbroadcast(g: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum g over the axes along which NumPy broadcast an array of `shape`."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, g.shape[extra:])):
        raise ValueError(f"the vjp gave {list(g.shape)} for an argument of shape {list(shape)}")
    repeated = tuple(range(extra)) + tuple(extra + i for i, n in enumerate(shape) if n == 1)
    return g.sum(axis=repeated, keepdims=True).reshape(shape)


def one_type(*arrays: np.ndarray | None) -> Sequence[np.ndarray | None]:
    """Cast the arrays (None stays None) to the float type to which NumPy promotes them; integers
    alone become float64."""
    dtypes = [a.dtype for a in arrays if a is not None]
    if dtypes.count(dtypes[0]) == len(dtypes) and dtypes[0].char in "fd":
        return arrays
    dtype = np.result_type(*dtypes)
    if dtype.char not in NUMBERS:
        raise _unfit(dtype)
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return [None if a is None else a.astype(dtype) for a in arrays]


@contextmanager
def no_grad() -> Iterator[None]:
    """Compute values without recording the graph, in this thread or task."""
    _paused.set(_paused.get() + 1)
    try:
        yield
    finally:                            # blocks may end in another order than they began in
        _paused.set(max(_paused.get() - 1, 0))


class Event(NamedTuple):
    """An op that has run forward, or has passed its gradient on; or another part of a step.

    A watcher may keep these arrays: nothing writes into them later.  An output may be `Added`.
    """
    op: str
    direction: str          # "forward", "backward", or "part" for what is no op
    seconds: float
    node: Node | None       # backward: whose gradient it was
    inputs: list            # forward: positional arguments; backward: d(loss)/d(value)
    outputs: list           # forward: Tensors; backward: (parent, its part of the gradient)


def timed(part: str) -> Callable:
    """Make a function a part of a training step, whose time watchers of ops are told.  The function
    calls no op."""
    def decorate(f):
        @wraps(f)
        def timed_part(*args, **settings):
            started = perf_counter()
            value = f(*args, **settings)
            if watchers := _watchers.get():
                _tell(watchers, Event(part, "part", perf_counter() - started, None, [], []))
            return value
        return timed_part
    return decorate


@contextmanager
def watch_ops(watcher: Callable[[Event], None]) -> Iterator[None]:
    """Call `watcher(event)` after every op and its gradient, in this thread or task.  Watchers that
    are already active are still called."""
    only = [watcher]                    # told from another watching by the same watcher
    _watchers.set((*_watchers.get(), only))
    try:
        yield
    finally:
        _watchers.set(tuple(other for other in _watchers.get() if other is not only))


def _tell(watchers, event):
    for watcher, in watchers:
        watcher(event)


def _unfit(dtype):
    return TypeError(f"a Tensor holds numbers (float32, float64, integers or bools), not {dtype}: "
                     "convert it first, for instance with array.astype(np.float32); Tensors are "
                     "joined by mg.stack")


def _brief(a):
    return f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else repr(a)
