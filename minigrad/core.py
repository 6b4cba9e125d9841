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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import lru_cache, partial, wraps
from heapq import heappop, heappush
from itertools import chain, repeat
from threading import RLock
from time import perf_counter
from typing import Any

import numpy as np

from minigrad import changes
from minigrad.gradients import TRUSTED, Gradient, gradient_parts, read_only
from minigrad.operators import OPS, Operators
from minigrad.plug import tell, watchers
from minigrad.words import shown

Array = Any     # an argument of an op that is no setting: a Tensor, or what is made an array
# The types of a Tensor, in the machine's order of bytes
NUMBERS = frozenset(np.dtype(char) for char in "?bhilqBHILQfd")

_paused = ContextVar("paused", default=0)       # how many blocks of no_grad are open
_changing = RLock()     # held by the thread that takes a node's vjps, or adds to a leaf's gradient


class Node:
    """A place in the graph.  It holds no value, only where a gradient goes next."""
    __slots__ = ("op", "shape", "dtype", "parents", "vjps", "trusted", "birth", "grad")

    def __init__(self, op, shape, dtype, parents=None, vjps=None, trusted=False):
        self.op = op                    # name of the op that made it; "leaf" for an input
        self.shape = shape
        self.dtype = dtype
        self.parents = parents          # nodes of the inputs, None for a constant
        self.vjps = vjps                # one function per input, or one for all; None once used
        self.trusted = trusted          # the vjps write into no gradient that they are given
        self.birth = next(changes.clock)    # it is younger than all that it was made from
        self.grad = None                # filled for leaves only: an array, or Rows of it

    def __reduce__(self) -> tuple[type, tuple]:
        """Unpickled, a leaf is a new leaf, without a gradient, as in PyTorch."""
        if self.op != "leaf":
            raise TypeError(f"a copy of a result, here of {self.op}, would pass no gradient on: "
                            "copy tensor.detach(), or copy the leaves and compute it again")
        return Node, ("leaf", self.shape, self.dtype)

    def __deepcopy__(self, memo: dict) -> "Node":
        """Copied, a leaf is a new leaf, with a copy of the gradient, as in PyTorch."""
        make, settings = self.__reduce__()
        copy = make(*settings)
        copy.grad = deepcopy(self.grad, memo)
        return copy


class Tensor(Operators):
    """A NumPy array and, if it requires a gradient, its place in the graph.

    Parameters
    ----------
    data : anything that `np.asarray` takes, but masked arrays; an array is not copied, if it is in
        the machine's order of bytes.
    requires_grad : whether `backward` fills `.grad`; the data must then be floats.
    """
    __slots__ = ("_data", "node", "frozen")     # `frozen` is there once requires_grad was set

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        if type(data) is not np.ndarray or data.dtype not in NUMBERS:
            data = _as_numbers(data)
        self._data = data
        self.node = None
        if requires_grad:
            if data.dtype.kind != "f":
                raise TypeError(f"only floats have gradients, and this is {brief(data)}; "
                                "convert it first, for instance with array.astype(np.float32)")
            self.node = Node("leaf", data.shape, data.dtype)

    @property
    def data(self) -> np.ndarray:
        """The values.  What takes their place is made an array, as by the constructor; unless this
        is a constant, it has the shape and type that this was made with.

        A gradient is that of the values which the ops have read.  `backward` refuses if an array
        that it needs was changed in between by an optimiser, or as in x.data -= 1.  It cannot see
        that somebody wrote into an array, as by x.data[0] = 1: do that before the op or after
        `backward`.
        """
        return self._data

    @data.setter
    def data(self, values):
        array = Tensor(values)._data
        if self.node is not None:
            if not hasattr(values, "dtype"):        # a number or a list, which has no type yet
                array = array.astype(self.node.dtype)
            _check_fits("data have", array, self.node)
        if np.may_share_memory(array, self._data):
            changes.note(array, _kind(self), "as .data was set")
        self._data = array

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient goes through this Tensor.  Of a leaf it can be set: False freezes it,
        drops its gradient, and gives it no place in graphs to come; True makes it a leaf again."""
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value):
        if self.node is not None and self.node.op != "leaf":
            raise AttributeError(
                f"{brief(self)} is no leaf: requires_grad is set for parameters; for a result "
                "through which no gradient goes, take x.detach()")
        if not value:
            self.node = None
        elif self.node is None:
            Tensor.__init__(self, self._data, requires_grad=True)
        self.frozen = not value         # an optimiser refuses other constants

    @property
    def grad(self) -> np.ndarray | None:
        """d(loss)/d(self), summed over the backward passes since it was last None; leaves only.
        Reading it makes a whole array of a gradient that was kept as `Rows`."""
        if self.node is None or self.node.grad is None:
            return None
        with _changing:
            if self.node.grad is not None:
                self.node.grad = np.asarray(self.node.grad)
            return self.node.grad

    @grad.setter
    def grad(self, value):
        if self.node is None and value is None:     # as it is: a loop over frozen parameters
            return
        if self.node is None or self.node.op != "leaf":
            raise ValueError(f"{brief(self)} is no leaf: a gradient is kept only where "
                             "requires_grad=True was given")
        if value is not None:           # optimisers read it as numbers of the data's type
            value = Tensor(value)._data
            _check_fits("a gradient has", value, self.node)
            value = np.require(value, requirements="W")     # clipping writes into it
        self.node.grad = value

    def __repr__(self) -> str:
        if self.size > 20:
            return brief(self)
        return f"Tensor({self.data}, {_kind(self)})"

    def __format__(self, how: str) -> str:
        if not how:
            return str(self)
        if self.size != 1:
            raise TypeError(f"{brief(self)} has {self.size} numbers, and {how!r} formats one")
        return format(self.item(), how)

    def detach(self) -> "Tensor":
        """Return a constant with the same data."""
        return Tensor(self.data)

    def backward(self, g: Any = None, **others: Any) -> None:
        """Add d(self)/d(leaf) to the `.grad` of every leaf below, and free the graph.

        Parameters
        ----------
        g : the gradient to start from, of this tensor's shape; optional for a single number.

        Raises
        ------
        ValueError : nothing below requires a gradient, or `g` is missing or has another shape.
        RuntimeError : an earlier backward has freed this graph or a part of it; or an array that a
            vjp needs has changed since its op has read it.
        """
        if others:
            raise TypeError(f"backward takes g, the gradient to start from, and no {[*others][0]}: "
                            "it frees the graph (compute the value again, or sum the losses and go "
                            "back once), and there are no second derivatives")
        if self.node is None:
            raise ValueError(f"{brief(self)} depends on nothing that requires a gradient: make a "
                             "leaf by mg.Tensor(array, requires_grad=True); x.grad and x.data are "
                             "constants, and there are no second derivatives")
        value = self._data
        if g is None:
            if value.size != 1:
                raise ValueError(f"{brief(value)} is not a single number: say which gradient "
                                 "to start from, as in y.backward(g), or sum it first")
            g = np.array(1, value.dtype).reshape(value.shape)
        else:
            g = Tensor(g)._data.astype(value.dtype, copy=False)
            if g.shape != value.shape:
                raise ValueError(f"the gradient to start from has shape {list(g.shape)}, "
                                 f"the tensor {list(value.shape)}")
        leaves = _run_backward(self.node, g)
        with _changing:                 # only now, so that an error changes no gradient
            while leaves:               # one by one, so that none is there twice for long
                node, gradient = leaves.popitem()
                if node.grad is None:
                    node.grad = gradient.to_keep()
                else:
                    node.grad = np.asarray(np.add(node.grad, gradient.array))


# Of these types an op takes an argument as it is, whatever its value; a number in place of its
# only array is made one.
NUMBER_TYPES = frozenset({bool, int, float})
USUAL_TYPES = NUMBER_TYPES | {Tensor, np.ndarray, type(None), str, slice, np.random.Generator}


def op(f: Callable | None = None, *, register: bool = True) -> Callable:
    """Make `f(*arrays, settings) -> value, vjps` a differentiable op on Tensors, and list it in OPS
    (not with `@op(register=False)`).  An op named as a builtin is defined with a final underscore.

    `vjps` has one function for each array, in the order of the arguments, from d(loss)/d(value) to
    d(loss)/d(argument); None where there is no derivative.  Where arguments share work, `vjps` is
    one function, which returns a tuple of all gradients.  A vjp must not write into
    d(loss)/d(value), which others may get, too, and is given it read-only.  It may return

    - an array of the shape that the argument has, or to which NumPy broadcast it (it is summed
      back, once for all ops): g itself, a view of g, or a new array, which must not be kept;
    - or, where most of the gradient is zero, `Added` with the function that adds it in place.

    An argument of f is an array, or a setting if it has a default or an annotation other than
    `Array`.  A list for an array is made one, and Tensors in it are stacked.  A number stays a
    number, whose type gives way to that of arrays; only where f has a single array, it is made one.
    A setting stays as it is, but that f gets the arrays of Tensors: a list or tuple in which there
    is a Tensor is as many arrays as it has parts.

    An op with several values returns a list of them, and one of their vjps.
    """
    if f is None:
        return partial(op, register=register)
    name = f.__name__.rstrip("_")
    signature = inspect.signature(f, eval_str=True).replace(return_annotation=Tensor)
    on_tensors = wraps(f)(_on_tensors(f, name, signature))
    on_tensors.__name__ = name
    on_tensors.__signature__ = signature
    if register:
        _register(name, on_tensors)
    return on_tensors


def _on_tensors(f, name, signature):
    """Return the op of this name, which calls f on the arrays of Tensors."""
    takes_array, most = _arrays_among(signature.parameters.values())
    are_usual = lru_cache(partial(_are_usual, takes_array))     # types are looked at once
    trusted = f.__module__ in TRUSTED
    bound = _binding(name, signature)

    def on_tensors(*args, **settings):
        started = perf_counter() if watchers.get() else None
        arrays = args                   # until they are unwrapped
        try:
            if settings:                # arrays may be given by keyword, too
                args, settings = bound(args, settings)
            args, arrays, parents = _unwrapped(args, takes_array, are_usual)
            result = f(*arrays, **settings)
            if type(result) is not tuple or len(result) != 2:
                raise TypeError("an op returns its value and its vjps, as in y, (dx,), and this "
                                f"returned {brief(result)}")
            value, vjps = result
            out = _record(
                name,
                most,
                trusted,
                parents,
                value,
                vjps)
        except Exception as error:
            error.add_note(f"in {name}({', '.join(map(brief, arrays))})")
            raise
        if started is not None:
            tell(
                name,
                "forward",
                started,
                inputs=args,
                outputs=out if type(out) is list else [out])
        return out
    return on_tensors


def _register(name, op):
    """List an op.  Defining it again in its own module, as in a notebook, replaces it."""
    if name in OPS and OPS[name].__module__ != op.__module__:
        raise ValueError(f"there is already an op called {name}, in {OPS[name].__module__}: choose "
                         "another name, or write @mg.op(register=False)")
    OPS[name] = op


def _arrays_among(parameters):
    """Return, for each positional parameter of an op, whether it is an array and no setting (the
    last stands for all that follow, as in *arrays); and how many vjps the op has at most."""
    takes_array = []
    most = 0
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY or parameter.kind is parameter.VAR_KEYWORD:
            continue
        hinted = parameter.annotation is Array
        unhinted = parameter.annotation is parameter.empty
        takes_array.append(hinted or unhinted and parameter.default is parameter.empty)
        if hinted or unhinted:          # a default of None may stand for an array
            most = len(takes_array)
    return takes_array or [False], most


def _binding(name, signature):
    """Return a function that returns the arguments of an op by position, as far as they can be, and
    the others by keyword."""
    parameters = list(signature.parameters.values())
    all_have_places = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    places = {p.name: i for i, p in enumerate(parameters)}
    defaults = [p.default for p in parameters]
    required = [p.name for p in parameters if p.default is p.empty]

    def bound(args, settings):
        fits = all_have_places and len(args) <= len(parameters)
        for required_name in required[len(args):]:
            fits = fits and required_name in settings
        values = [*args, *defaults[len(args):]]
        for setting, value in settings.items():
            place = places.get(setting, -1)
            if place < len(args):       # it is unknown, or given by position, too
                fits = False
            else:
                values[place] = value
        if fits:
            return values, {}
        return _bound(
            name,
            signature,
            args,
            settings)
    return bound


def _bound(name, signature, args, settings):
    """Return the arguments of an op by position, as far as they can be, and the others by keyword.
    """
    try:
        bound = signature.bind(*args, **settings)
    except TypeError as error:
        takes = ", ".join(signature.parameters).replace("axis", "axis (PyTorch's dim)")
        takes = takes.replace("correction", "correction (NumPy's ddof)")
        raise TypeError(f"{error}; {name} takes {takes}") from None
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _are_usual(takes_array, *types):
    """Return whether an op takes arguments of these types as they are, and needs not look at their
    values."""
    one_array = takes_array.count(True) == 1
    for kind, is_array in zip(types, chain(takes_array, repeat(takes_array[-1]))):
        if kind not in USUAL_TYPES:
            return False
        if kind in NUMBER_TYPES and is_array and one_array:
            return False
    return True


def _unwrapped(args, takes_array, are_usual):
    """Return the arguments of an op as `_converted` does.  If their types are usual, there is
    nothing to convert but Tensors, and no value is looked at."""
    arrays = []
    nodes = []
    tensors = 0
    for arg in args:
        if type(arg) is Tensor:
            arrays.append(arg._data)
            nodes.append(arg.node)
            tensors += 1
        else:
            arrays.append(arg)
            nodes.append(None)
    if tensors < len(args) and not are_usual(*map(type, args)):
        return _converted(args, takes_array)
    return args, arrays, nodes


def _converted(args, takes_array):
    """Return the arguments of an op, with lists for arrays as arrays or Tensors; the same with
    arrays for Tensors; and the node of each, None for a constant."""
    inputs = []
    arrays = []
    parents = []
    for arg, is_array in zip(args, chain(takes_array, repeat(takes_array[-1]))):
        if is_array and not isinstance(arg, (Tensor, np.ndarray)):
            arg = _as_array(arg, takes_array.count(True))
        inputs.append(arg)
        if isinstance(arg, Tensor):
            arrays.append(arg._data)
            parents.append(arg.node)
        elif isinstance(arg, (list, tuple)) and _holds_tensor(arg):
            parts, nodes = _unwrapped_parts(arg)
            arrays.append(parts)
            parents += nodes
        else:
            if hasattr(arg, "filled"):
                _refuse_masked(arg)
            arrays.append(arg)
            parents.append(None)
    return inputs, arrays, parents


def _as_array(arg, count):
    """Return an argument that is an array: of a list, an array or a Tensor; of a number the number,
    unless it is the only array that the op takes, by their count."""
    if isinstance(arg, (list, tuple)):
        return OPS["stack"](arg) if _holds_tensor(arg) else np.asarray(arg)
    if count == 1 and isinstance(arg, (int, float, complex)):
        return np.asarray(arg)
    return arg


def _holds_tensor(arg):
    """Return whether there is a Tensor in a list or tuple."""
    return any(isinstance(part, Tensor) for part in arg)


def _unwrapped_parts(several):
    """Return a list or tuple of arrays for one with Tensors in it, and the node of each."""
    parts = []
    nodes = []
    for part in several:
        if isinstance(part, Tensor):
            parts.append(part._data)
            nodes.append(part.node)
        else:
            _refuse_masked(part)
            parts.append(part)
            nodes.append(None)
    return parts if isinstance(several, list) else tuple(parts), nodes


def _in_pairs(values, vjps):
    """Return (value, its vjps) of each value that an op returned in a list."""
    count = len(vjps) if isinstance(vjps, (list, tuple)) else 0
    if count != len(values):
        raise ValueError("an op with several values returns a list of them and a list of their "
                         "vjps, as in [y, z], [(dy,), (dz,)], and this returned "
                         f"{len(values)} values, and the vjps of {count}")
    return zip(values, vjps)


def _record(name, most, trusted, parents, value, vjps):
    """Return the value as a Tensor, with a node if one of its parents can get a gradient; of a list
    of values, a list.  The op has no more than `most` arguments, but for lists of arrays."""
    if type(value) is list:
        of_each = partial(
            _record,
            name,
            most,
            trusted,
            parents)
        return [of_each(*pair) for pair in _in_pairs(value, vjps)]
    out = Tensor(value)
    array = out._data
    one_each = type(vjps) is tuple or type(vjps) is list
    if one_each:
        count = len(vjps)
        if count > most and count > len(parents):
            raise ValueError(f"{name} has {count} vjps, and {most} arguments: give one for each, "
                             "in their order, or None; where an argument is a list of arrays, "
                             "annotate it as one, as in xs: list")
    elif not callable(vjps):
        raise TypeError(f"the vjps of {name} are a function, or a tuple of one for each argument, "
                        f"and these are {brief(vjps)}")
    if _paused.get() or array.dtype.kind != "f" or not any(parents):
        return out
    if not one_each:
        if len(parents) < most:
            parents = parents + [None] * (most - len(parents))      # it may give one for each
    elif count != len(parents) or not all(parents) or None in vjps:
        if any(parents[count:]):
            raise ValueError(f"{name} has {count} vjps, and none for a later argument "
                             "that requires a gradient")
        needed = [(parent, vjp) for parent, vjp in zip(parents, vjps)
                  if parent is not None and vjp is not None]
        if not needed:
            return out
        parents, vjps = zip(*needed)            # keep only the vjps that will be called
    out.node = Node(
        name,
        array.shape,
        array.dtype,
        parents,
        vjps,
        trusted)
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
    """Send g from the root to the leaves; return the gradient of each, and free the graph."""
    gradients = {root: Gradient(root, g)}       # of each node that waits: its parts so far
    waiting = [(-root.birth, root)]
    # Youngest first: all users of a node are younger, and done, so its gradient is complete.
    while waiting:
        _, node = heappop(waiting)
        if node.op != "leaf":
            _pass_on(
                node,
                gradients.pop(node).array,
                gradients,
                waiting)
    return gradients                            # those of the leaves are left


def _pass_on(node, g, gradients, waiting):
    """Call the vjps of a node with its gradient g, and add what they return to the gradients of its
    parents, which then wait for their turn.  The node is freed, with the arrays that its vjps keep.
    """
    vjps, parents = _taken_from(node)
    started = perf_counter()
    try:
        if changes.latest > node.birth:
            changes.refuse(node, vjps)
        parts = gradient_parts(vjps, parents, g if node.trusted else read_only(g))
        for parent, part in parts:
            if parent in gradients:
                gradients[parent].add(part)
            else:
                gradients[parent] = Gradient(parent, part)
                heappush(waiting, (-parent.birth, parent))
    except Exception as error:
        node.vjps, node.parents = vjps, parents
        error.add_note(f"in the gradient of {node.op}, from {brief(g)}")
        raise
    if watchers.get():
        tell(
            node.op,
            "backward",
            started,
            node,
            [g],
            parts)


def _taken_from(node):
    """Return the vjps and parents of a node, which it then has no longer: no two threads get them.
    """
    with _changing:
        vjps, parents = node.vjps, node.parents
        node.vjps = node.parents = None
    if vjps is None:
        raise RuntimeError(f"the graph below this {node.op} was freed by an earlier backward(); "
                           "compute the value again, or sum the losses and go back once")
    return vjps, parents


def one_type(*arrays: np.ndarray | None) -> Sequence[np.ndarray | None]:
    """Cast the arrays (None stays None) to the float type to which NumPy promotes them; integers
    alone become float64."""
    dtypes = frozenset([x.dtype for x in arrays if x is not None])
    dtype = float_type(dtypes)
    if dtypes == {dtype}:
        return arrays
    return [None if x is None else x.astype(dtype, copy=False) for x in arrays]


@lru_cache
def float_type(dtypes: frozenset[np.dtype]) -> np.dtype:
    """Return the float type to which NumPy promotes these types."""
    dtype = np.result_type(*dtypes)
    if dtype not in NUMBERS:
        raise _unfit(dtype)
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def quiet() -> np.errstate:
    """Return a context in which NumPy does not warn, where an infinity or a nan is the right value.
    Somebody who listens to NumPy's errors, as the detective of `watch` does, hears them."""
    warning = [kind for kind, answer in np.geterr().items() if answer == "warn"]
    return np.errstate(**dict.fromkeys(warning, "ignore"))


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


def _as_numbers(data):
    """Return data as an array of numbers in the machine's order of bytes, without a copy if they
    are one.  Raise a TypeError if they are no numbers."""
    if isinstance(data, Tensor):
        return data._data
    array = np.asarray(data)
    if array is not data and isinstance(data, np.ndarray):
        _refuse_masked(data)
    if array.dtype in NUMBERS:
        return array
    dtype = array.dtype.newbyteorder("=")
    if dtype not in NUMBERS:
        raise _unfit(array.dtype)
    return array.astype(dtype)


def _refuse_masked(array):
    """Raise a TypeError if an array is masked."""
    if hasattr(array, "filled"):
        raise TypeError("a masked array would lose its mask: give its numbers, as with "
                        "array.filled(0), and the mask to mg.where")


def _check_fits(what, array, node):
    """Raise a ValueError unless an array has a node's shape and type."""
    if array.shape != node.shape or array.dtype != node.dtype:
        expected = f"{node.dtype}{list(node.shape)}"
        raise ValueError(f"{what} the shape and type that its tensor was made with, {expected}, "
                         f"and this is {brief(array)}; cast it, as with "
                         f"array.astype(np.{node.dtype}), or make a new Tensor")


def _kind(tensor):
    """Return the op that made a tensor, or that it is a leaf or a constant."""
    return "constant" if tensor.node is None else tensor.node.op


def brief(value: Any) -> str:
    """Return a value as a message shows it: shape and type of an array, and at most three parts of
    a list."""
    if isinstance(value, Tensor):
        return f"Tensor({value.dtype}{list(value.shape)}, {_kind(value)})"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    if not isinstance(value, (list, tuple)):
        holds = isinstance(value, Collection) and not isinstance(value, str)
        return f"a {type(value).__name__} of {len(value)}" if holds else shown(repr(value))
    parts = [brief(part) for part in value[:3]]
    if len(value) > 3:
        parts.append(f"... {len(value)} of them")
    inside = ", ".join(parts)
    return f"[{inside}]" if isinstance(value, list) else f"({inside})"
