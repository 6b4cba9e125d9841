"""What a Tensor, a Module and the namespace answer to habits from NumPy and PyTorch.

What NumPy's arrays have and can be differentiated works, by `operators`.  All else is refused here,
in a sentence that names the remedy: the op of that name, the array (`x.data`), or a row of the
tables below.  Nothing that a Tensor has is replaced.
"""
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

import numpy as np

from minigrad.core import Tensor
from minigrad.ops import OPS

# Names that NumPy or PyTorch have, and what is written here.
OF_OPS = {
    "abs absolute": "mg.maximum(x, -x)", "square": "x * x", "cat concat": "mg.concatenate",
    "clamp clip": "mg.maximum(x, low), and -mg.maximum(-x, -high) for an upper bound",
    "chunk": "mg.split", "div true_divide": "mg.divide", "mul": "mg.multiply", "neg": "mg.negative",
    "pow": "mg.power", "sub": "mg.subtract", "bmm dot mm": "mg.matmul, or x @ y",
    "expand": "mg.broadcast_to", "gather index_select": "mg.take, or x[index]",
    "masked_fill": "mg.where(mask, value, x)", "permute": "mg.transpose",
    "min amin": "-mg.max(-x)", "amax": "mg.max", "minimum": "-mg.maximum(-x, -y)",
    "flatten ravel": "x.reshape(-1)", "view view_as": "mg.reshape",
    "squeeze": "x[:, 0], or mg.reshape", "unsqueeze": "x[:, None], or mg.reshape",
    "log1p": "mg.log(1 + x)", "expm1": "mg.exp(x) - 1", "reciprocal": "1 / x", "rsqrt": "x ** -0.5",
    "var": "((x - x.mean()) ** 2).mean()", "std": "((x - x.mean()) ** 2).mean() ** 0.5",
    "outer": "x[:, None] * y", "cumsum": "x @ np.tri(n).T, for n columns",
    "einsum tensordot": "mg.reshape, mg.transpose and x @ y", "tril": "x * np.tri(T)",
    "pad": "mg.concatenate with np.zeros", "roll": "mg.concatenate([x[-n:], x[:-n]])",
    "repeat tile": "mg.broadcast_to, or mg.take(x, index, axis)",
    "norm": "(x * x).sum() ** 0.5; for rows, mg.rms_norm or mg.layer_norm",
    "logsumexp": "m + mg.log(mg.exp(x - m).sum()), with m = x.data.max()",
    "ReLU": "mg.relu", "GELU": "mg.gelu", "SiLU swish": "mg.silu", "Sigmoid": "mg.sigmoid",
    "Tanh": "mg.tanh", "Softmax": "mg.softmax",
    "leaky_relu LeakyReLU": "mg.maximum(x, 0.01 * x)",
    "elu ELU": "mg.relu(x) + mg.exp(-mg.relu(-x)) - 1",
    "softplus": "mg.relu(x) + mg.log(1 + mg.exp(-mg.maximum(x, -x)))",
    "hardtanh": "-mg.maximum(-mg.maximum(x, -1), -1)",
    "mse_loss MSELoss": "((x - y) ** 2).mean()",
    "l1_loss L1Loss": "mg.maximum(x - y, y - x).mean()",
    "binary_cross_entropy BCELoss": "-(y * mg.log(p) + (1 - y) * mg.log(1 - p)).mean()",
    "binary_cross_entropy_with_logits BCEWithLogitsLoss":
        "(mg.relu(x) - x * y + mg.log(1 + mg.exp(-mg.maximum(x, -x)))).mean()",
    "nll_loss NLLLoss": "mg.cross_entropy(logits, targets), or -logp[np.arange(n), targets].mean()",
    "CrossEntropyLoss": "mg.cross_entropy(logits, targets)",
    "one_hot": "np.eye(classes)[ids]",
    "conv1d conv2d Conv1d Conv2d":
        "mg.linear of the windows x[:, rows, columns], with arrays of indices",
    "LSTM GRU RNN": "mg.linear, mg.sigmoid and mg.tanh in a loop over the steps",
    "BatchNorm1d BatchNorm2d batch_norm": "mg.layer_norm, or x - x.mean(axis=0), scaled"}
OF_BOTH = {
    "zero_grad": "set x.grad = None, or call optimizer.zero_grad()",
    "cpu cuda device": "leave it out, as all computing is on the CPU",
    "bfloat16 double float float16 float32 float64 half int long to":
        "the type is chosen where a Tensor or a model is made, as in "
        "mg.Tensor(x.data.astype(np.float32)), and all computing is on the CPU",
    "requires_grad_": "write mg.Tensor(array, requires_grad=True); to freeze a parameter, leave it "
                      "out of those that the optimiser is given"}
OF_TENSOR = OF_BOTH | {
    "astype type": OF_BOTH["bfloat16 double float float16 float32 float64 half int long to"],
    "clone contiguous copy": "take x itself, which no op changes, or x.data.copy()",
    "dim": "take x.ndim", "numel": "take x.size", "mT t": "take x.T, or x.swapaxes(-1, -2)",
    "numpy": "take x.data, the array",
    "zero_ fill_ copy_ normal_ uniform_ bernoulli_ random_":
        "write x.data[...] = values, as in w.data[...] = 0",
    "is_leaf grad_fn retain_grad register_hook":
        "only a Tensor with requires_grad=True keeps a gradient; mg.Recorder shows the others"}
OF_MODULE = OF_BOTH | {
    "train eval": "leave it out, as dropout happens only where a random generator is given, as in "
                  "model(x, rng=rng)",
    "forward": "write model(x)", "modules children named_children": "take model.named_modules()",
    "apply": "go through model.named_modules()",
    "freeze": "leave its parameters out of those that the optimiser is given",
    "register_buffer": "write self.name = array, which is saved beside state_dict",
    "register_parameter": "write self.name = mg.Tensor(array, requires_grad=True)",
    "add_module": "write self.name = part"}
OF_NAMESPACE = {
    "tensor as_tensor from_numpy Parameter Variable": "write mg.Tensor(array, requires_grad=True)",
    "arange empty eye full linspace ones ones_like rand randn zeros zeros_like":
        "make a Tensor of NumPy's array, as in mg.Tensor(np.ones(3))",
    "manual_seed": "give np.random.default_rng(seed) to dropout and to models",
    "nn Module functional": "Module is in minigrad.module, layers are in model.layers, and ops "
                            "here, as mg.gelu",
    "load save": "take load_checkpoint and save_checkpoint of model, or np.save",
    "float float16 float32 float64 int32 int64 long": "take NumPy's type, as np.float32",
    "inference_mode set_grad_enabled": "write with mg.no_grad():",
    "Adam": "take mg.AdamW, with weight_decay=0", "RMSprop Adagrad Adadelta": "take mg.AdamW",
    "lr_scheduler LambdaLR StepLR": 'set optimizer.param_groups[0]["lr"] before a step',
    "autograd grad": "call loss.backward(), and read x.grad",
    "cuda device": OF_BOTH["cpu cuda device"],
    "Linear Embedding LayerNorm RMSNorm Dropout MLP":
        "layers are in model.layers, as in from model.layers import Linear",
    "MultiheadAttention": "write from model import MultiHeadAttention",
    "Transformer": "write from model import Transformer",
    "Sequential ModuleList ModuleDict":
        "hold layers in a list of a Module (minigrad.module), and write "
        "for layer in self.layers: x = layer(x)"}


def op_for(name: str) -> str:
    """Return the end of a sentence that names the op to take; "" if there is none."""
    plain = name.rstrip("_")            # PyTorch's ops in place end in it
    if plain in OPS:
        return f": take mg.{plain}"
    instead = _row(plain, OF_OPS)
    return f": take {instead}" if instead else ""


def _row(name, table):
    """Return what a table says of a name, or None."""
    return next((said for names, said in table.items() if name in names.split()), None)


def missing(who: str, name: str, table: dict[str, str]) -> AttributeError:
    """Return the error for an attribute that is not there."""
    instead = _row(name, table)
    said = f": {instead}" if instead else op_for(name)
    if not said and table is not OF_MODULE and (hasattr(np.ndarray, name) or hasattr(np, name)):
        said = (": NumPy has it, for values without a gradient (x.data); @mg.op makes an op of a "
                "function and its derivative")
    if not said:
        said = "".join(f": did you mean {near}?" for near in get_close_matches(name, OPS, 1))
    return AttributeError(f"{who} has no {name}{said}", name=name)


class Missing:
    """An attribute that is not there, whose error says what to take.  (With `__getattr__` in its
    place, Python would look every attribute up more slowly.)"""

    def __init__(self, name: str, table: dict[str, str]) -> None:
        self.name, self.table = name, table

    def __get__(self, owner: Any, kind: type) -> NoReturn:
        raise missing(f"a {kind.__name__}", self.name, self.table)


def refuse(kind: type, table: dict[str, str], more: Iterable[str] = ()) -> None:
    """Let a class answer for names that it has not: those of a table, and more."""
    for name in {*" ".join(table).split(), *more}:
        if not hasattr(kind, name):
            setattr(kind, name, Missing(name, table))


def _of_numpy(self: Tensor, function: Callable, types: Any, args: tuple, settings: dict) -> Any:
    """Answer a function of NumPy that is given a Tensor."""
    if function in (np.shape, np.ndim, np.size):
        return function(*[x.data if isinstance(x, Tensor) else x for x in args], **settings)
    name = function.__name__
    raise TypeError(f"NumPy cannot differentiate {name}{op_for(name)}; for values without a "
                    "gradient, give it x.data")


def _refusal(says: str) -> Callable:
    """Return a method that raises a TypeError with these words."""
    def refused(self: Tensor, *args: Any, **settings: Any) -> NoReturn:
        raise TypeError(says)
    return refused


def _in_place(sign: str) -> Callable:
    def change(self: Tensor, other: Any) -> Any:
        if self.node is None or self.node.op != "leaf":
            return NotImplemented       # Python then computes x = x + other
        raise TypeError(f"x {sign} y would make of this leaf the result of an op: write "
                        f"x.data {sign} y, as in w.data -= lr * w.grad, or y = x {sign[:-1]} ...")
    return change


for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Tensor, f"__{_name}__", _refusal(
        f"a Tensor is not compared: write x.data {_sign} y for its values, x.item() {_sign} y for "
        "a single one, or x is y for the Tensor itself"))
for _name, _sign in {"iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "ipow": "**=",
                     "imatmul": "@="}.items():
    setattr(Tensor, f"__{_name}__", _in_place(_sign))
for _name, _sign in {"floordiv": "//", "mod": "%", "and": "&", "or": "|", "xor": "^",
                     "lshift": "<<", "rshift": ">>"}.items():
    for _reflected in ("", "r"):
        setattr(Tensor, f"__{_reflected}{_name}__", _refusal(
            f"{_sign} has no derivative to train by: write x.data {_sign} y for values"))
refuse(Tensor, OF_TENSOR, [*OPS, *(f"{name}_" for name in OPS), *" ".join(OF_OPS).split(),
                           *(name for name in dir(np.ndarray) if not name.startswith("_"))])
Tensor.__array__ = _refusal(
    "NumPy cannot differentiate; take the op from minigrad, as mg.exp(x) for np.exp(x), or make "
    "one with @mg.op (to join Tensors, mg.stack or mg.concatenate), or the array with tensor.data")
Tensor.__array_function__ = _of_numpy
Tensor.__invert__ = _refusal("~ has no derivative to train by: write ~x.data for values")
Tensor.__round__ = _refusal("rounding has no derivative to train by: write x.data.round()")
Tensor.__contains__ = _refusal("a Tensor is not searched: write value in x.data")
Tensor.__abs__ = lambda self: self.abs
Tensor.__setitem__ = _refusal("an op's argument is not changed in place: write x.data[index] = "
                              "value for its values, or y = mg.where(condition, value, x)")
