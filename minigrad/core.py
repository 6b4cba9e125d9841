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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import partial, wraps
from heapq import heappop, heappush
from itertools import count, zip_longest
from time import perf_counter
from typing import Any

import numpy as np

from minigrad.rows import Added, Rows
from minigrad.watching import tell, watchers

OPS: dict[str, Callable] = {}       # name -> op; the gradient check reads it

Array = Any     # an argument of an op: a Tensor, an ndarray, or a number or list, made an array
Operand = Array | float     # the same, but a number stays one, whose type gives way to an array's
Arrays = list[Array]
UNKNOWN = inspect.Parameter.empty
OF_ARRAYS = Array, Operand, Arrays, object, UNKNOWN     # type hints of what is no mere setting
Rule = tuple    # what a function under @op returns: its value and its vjps
NUMBERS = "?bhilqBHILQfd"   # the types of a Tensor, by NumPy's characters

_births = count()
_paused = ContextVar("paused", default=0)       # how many blocks of no_grad are open


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
    `vjps` is one function, which returns a tuple of all gradients.  An argument may be a list of
    arrays; each then counts as one.  A vjp may return

    - an array of the argument's shape, or of the shape to which NumPy broadcast the argument (it is
      summed back here, once for all ops): g itself, a view of g, or a new array, which must not be
      kept;
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
        arrays, started = args, perf_counter()
        try:
            if settings:
                args, settings = _by_position(signature, args, settings)
            arrays, parents = _unwrapped(args, hints, numbers_at)
            made = f(*arrays, **settings)
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
        if watchers.get():
            tell(name, "forward", started, None, args, out if isinstance(out, list) else [out])
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
    elif not callable(vjps):
        raise TypeError(f"the vjps of {name} are a function, or a tuple of one for each argument, "
                        f"and these are {_brief(vjps)}")
    out.node = Node(name, out.data, parents, vjps)
    return out


def _run_backward(root, g):
    """Send g from the root to the leaves; return (leaf, gradient) pairs and free the graph."""
    sums = {root: (g, False)}           # node -> its gradient so far, and whether the engine has
    waiting = [(-root.birth, root)]     # made this array, as a sum, so that it may write into it
    leaves, held, watched = [], {id(g)}, bool(watchers.get())
    while waiting:                      # youngest first: every user of a node is younger and done,
        _, node = heappop(waiting)      # so the gradient taken here is a finished sum
        g, made_here = sums.pop(node)
        if node.op == "leaf":
            leaves.append((node, g if made_here else _own(g, held, watched)))
            continue
        if node.vjps is None:
            raise RuntimeError(f"the graph below this {node.op} was freed by an earlier "
                               "backward(); compute the value again, or sum the losses and go "
                               "back once")
        started, sent = perf_counter(), []
        try:
            for parent, dx in _gradients(node, g):
                if watched:
                    sent.append((parent, dx))
                if parent not in sums:
                    heappush(waiting, (-parent.birth, parent))
                total, writable = sums.get(parent, (None, False))
                sums[parent] = _sum(total, writable, dx, parent)
        except Exception as error:
            error.add_note(f"in the gradient of {node.op}, from {_brief(g)}")
            raise
        node.vjps = node.parents = None     # and with them the arrays that the vjps kept
        if watched:
            tell(node.op, "backward", started, node, [g], sent)
    return leaves


def _gradients(node, g):
    """Yield the node of each input, and its part of the gradient: an array of its shape and type,
    or `Added`."""
    vjps = node.vjps
    parts = vjps(g) if callable(vjps) else [vjp(g) for vjp in vjps]
    if not isinstance(parts, (tuple, list)):
        raise TypeError("one vjp for all arguments returns a tuple of gradients, not one array")
    for parent, dx in zip_longest(node.parents, parts):
        if parent is None:
            continue
        if dx is None:
            raise ValueError("there is no vjp for an argument that requires a gradient")
        if callable(dx):
            raise TypeError("a vjp returns an array, or mg.Added, not a function")
        if not isinstance(dx, Added) and (type(dx) is not np.ndarray or dx.shape != parent.shape
                                          or dx.dtype != parent.dtype):
            dx = unbroadcast(np.asarray(dx), parent.shape).astype(parent.dtype, copy=False)
        yield parent, dx


def _sum(total, writable, dx, parent):
    """Return total + dx, and whether it may be written into: it may if it was made here.  The
    total is None at first."""
    if isinstance(dx, Added):
        return dx.to(total, writable, parent), True
    if total is None:
        return dx, False
    if writable and not isinstance(total, Rows):
        total += dx
        return total, True
    return np.asarray(_whole(total) + dx), True     # NumPy makes a scalar of two 0-d arrays


def _own(g, held, watched):
    """Return a gradient for a leaf to keep and others to write into: g itself, if no other leaf, no
    watcher and no caller holds its memory, else a copy."""
    if watched or g.base is not None or not g.flags.writeable or id(g) in held:
        return g.copy()
    held.add(id(g))
    return g


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


def _unfit(dtype):
    return TypeError(f"a Tensor holds numbers (float32, float64, integers or bools), not {dtype}: "
                     "convert it first, for instance with array.astype(np.float32); Tensors are "
                     "joined by mg.stack")


def _brief(a):
    return f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else repr(a)
