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
CONVOLUTION = (
    "a sum over the places of the weight; of x (B, C, H, W) and a weight (O, C, 3, 3): "
    "x = mg.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))); "
    "h, w = x.shape[2] - 2, x.shape[3] - 2; "
    "places = [(i, j) for i in range(3) for j in range(3)]; "
    "y = sum(mg.einsum('bchw,oc->bohw', x[:, :, i:i + h, j:j + w], weight[:, :, i, j]) "
    "for i, j in places)")
RECURRENT = "mg.linear, mg.sigmoid and mg.tanh in a loop over the steps"
BATCH_NORM = "mg.layer_norm, or (x - x.mean(axis=0)) / (x.var(axis=0) + 1e-5) ** 0.5, scaled"
TYPE = ("the type is chosen where a Tensor or a model is made, as in "
        "mg.Tensor(x.data.astype(np.float32)), and all computing is on the CPU")
ON_THE_CPU = "leave it out, as all computing is on the CPU"
A_LEAF = "write mg.Tensor(array, requires_grad=True)"

OF_OPS = {
    "absolute": "mg.abs",
    "amax": "mg.max",
    "amin": "mg.min",
    "cat": "mg.concatenate",
    "concat": "mg.concatenate",
    "chunk": "mg.split",
    "clamp": "mg.clip",
    "div": "mg.divide",
    "true_divide": "mg.divide",
    "mul": "mg.multiply",
    "neg": "mg.negative",
    "pow": "mg.power",
    "sub": "mg.subtract",
    "bmm": "mg.matmul, or x @ y",
    "dot": "mg.matmul, or x @ y",
    "mm": "mg.matmul, or x @ y",
    "outer": "x[:, None] * y",
    "tensordot": "mg.einsum('ij,jk->ik', x, y), with a letter for each axis",
    "trace": "mg.einsum('ii', x)",
    "expand": "mg.broadcast_to",
    "repeat": "mg.broadcast_to, or mg.take(x, index, axis)",
    "tile": "mg.broadcast_to, or mg.take(x, index, axis)",
    "gather": "mg.take, or x[index]",
    "index_select": "mg.take, or x[index]",
    "masked_fill": "mg.where(mask, value, x)",
    "permute": "mg.transpose",
    "flatten": "mg.ravel, or x.reshape(len(x), -1), which keeps the first axis",
    "unsqueeze": "mg.expand_dims, or x[:, None]",
    "view": "mg.reshape",
    "view_as": "mg.reshape",
    "roll": "mg.concatenate([x[-n:], x[:-n]])",
    "tril": "x * np.tri(T)",
    "reciprocal": "1 / x",
    "rsqrt": "x ** -0.5",
    "norm": "(x * x).sum() ** 0.5; for rows, mg.rms_norm or mg.layer_norm",
    "logsumexp": "m + mg.log(mg.exp(x - m).sum()), with m = x.data.max()",
    "ReLU": "mg.relu",
    "LeakyReLU": "mg.leaky_relu",
    "GELU": "mg.gelu",
    "SiLU": "mg.silu",
    "swish": "mg.silu",
    "Sigmoid": "mg.sigmoid",
    "logsigmoid": "-mg.softplus(-x)",
    "Tanh": "mg.tanh",
    "Softmax": "mg.softmax",
    "Softplus": "mg.softplus",
    "elu": "mg.where(x.data > 0, x, mg.expm1(mg.clip(x, None, 0)))",
    "ELU": "mg.where(x.data > 0, x, mg.expm1(mg.clip(x, None, 0)))",
    "relu6": "mg.clip(x, 0, 6)",
    "hardtanh": "mg.clip(x, -1, 1)",
    "MSELoss": "mg.mse_loss",
    "l1_loss": "mg.abs(x - y).mean()",
    "L1Loss": "mg.abs(x - y).mean()",
    "binary_cross_entropy": "-(y * mg.log(p) + (1 - y) * mg.log(1 - p)).mean()",
    "BCELoss": "-(y * mg.log(p) + (1 - y) * mg.log(1 - p)).mean()",
    "BCEWithLogitsLoss": "mg.binary_cross_entropy_with_logits",
    "NLLLoss": "mg.nll_loss",
    "CrossEntropyLoss": "mg.cross_entropy",
    "one_hot": "np.eye(classes)[ids]",
    "max_pool2d": "mg.max(x.reshape(B, C, H // 2, 2, W // 2, 2), axis=(3, 5))",
    "avg_pool2d": "mg.mean(x.reshape(B, C, H // 2, 2, W // 2, 2), axis=(3, 5))",
    **dict.fromkeys(["conv1d", "conv2d", "Conv1d", "Conv2d"], CONVOLUTION),
    **dict.fromkeys(["LSTM", "GRU", "RNN"], RECURRENT),
    **dict.fromkeys(["BatchNorm1d", "BatchNorm2d", "batch_norm"], BATCH_NORM)}
OF_BOTH = {
    "zero_grad": "set x.grad = None, or call optimizer.zero_grad()",
    "requires_grad_": f"{A_LEAF}; to freeze a parameter, set p.requires_grad = False",
    **dict.fromkeys(["cpu", "cuda", "device"], ON_THE_CPU),
    **dict.fromkeys(["bfloat16", "double", "float", "float16", "float32", "float64", "half", "int",
                     "long", "to"], TYPE)}
OF_TENSOR = OF_BOTH | {
    "astype": TYPE,
    "type": TYPE,
    "dim": "take x.ndim",
    "numel": "take x.size",
    "mT": "take x.T, or x.swapaxes(-1, -2)",
    "t": "take x.T, or x.swapaxes(-1, -2)",
    "numpy": "take x.data, the array",
    **dict.fromkeys(["clone", "contiguous", "copy"],
                    "take x itself, which no op changes, or x.data.copy()"),
    **dict.fromkeys(["zero_", "fill_", "copy_", "normal_", "uniform_", "bernoulli_", "random_"],
                    "write x.data[...] = values, as in w.data[...] = 0"),
    **dict.fromkeys(["is_leaf", "grad_fn", "retain_grad", "register_hook"],
                    "only a Tensor with requires_grad=True keeps a gradient; mg.Recorder shows the "
                    "others")}
OF_MODULE = OF_BOTH | {
    "forward": "write model(x)",
    "apply": "go through model.named_modules()",
    "freeze": "set p.requires_grad = False for each p of its parameters()",
    "register_buffer": "write self.name = nn.Buffer(array)",
    "buffers": "take model.named_buffers()",
    "register_parameter": "write self.name = mg.Tensor(array, requires_grad=True)",
    "add_module": "write self.name = part",
    **dict.fromkeys(["modules", "children", "named_children"], "take model.named_modules()"),
    **dict.fromkeys(["train", "eval"],
                    "leave it out, as dropout happens only where a random generator is given, as "
                    "in model(x, rng=rng)")}
OF_NAMESPACE = {
    "load": "take load_checkpoint and save_checkpoint of model, or np.save",
    "save": "take load_checkpoint and save_checkpoint of model, or np.save",
    "inference_mode": "write with mg.no_grad():",
    "set_grad_enabled": "write with mg.no_grad():",
    "Adam": "take mg.AdamW, with weight_decay=0",
    "autograd": "call loss.backward(), and read x.grad",
    "grad": "call loss.backward(), and read x.grad; there are no second derivatives",
    "cuda": ON_THE_CPU,
    "device": ON_THE_CPU,
    "MultiheadAttention": "write from model import MultiHeadAttention",
    "MultiHeadAttention": "write from model import MultiHeadAttention",
    "Transformer": "write from model import Transformer",
    **dict.fromkeys(["tensor", "as_tensor", "from_numpy", "Parameter", "Variable"], A_LEAF),
    **dict.fromkeys(["arange", "empty", "eye", "full", "linspace", "ones", "ones_like", "rand",
                     "randn", "zeros", "zeros_like"],
                    "make a Tensor of NumPy's array, as in mg.Tensor(np.ones(3))"),
    "functional": "ops are in minigrad, as mg.gelu",
    "MLP": "write from model.layers import MLP",
    **dict.fromkeys(["float", "float16", "float32", "float64", "int32", "int64", "long"],
                    "take NumPy's type, as np.float32"),
    **dict.fromkeys(["RMSprop", "Adagrad", "Adadelta"], "take mg.AdamW"),
    **dict.fromkeys(["lr_scheduler", "LambdaLR", "StepLR"],
                    'set optimizer.param_groups[0]["lr"] before a step'),
    **dict.fromkeys(["Module", "Linear", "Embedding", "LayerNorm", "RMSNorm", "Dropout",
                     "Sequential", "Buffer"],
                    "layers are in minigrad.nn, as in from minigrad import nn"),
    **dict.fromkeys(["ModuleList", "ModuleDict"],
                    "hold layers in a list or a dict of a Module (minigrad.nn), and write "
                    "for layer in self.layers: x = layer(x)")}


def op_for(name: str) -> str:
    """Return the end of a sentence that names the op to take; "" if there is none."""
    plain = name.rstrip("_")            # PyTorch's ops in place end in it
    if plain in OPS:
        return f": take mg.{plain}"
    return f": take {OF_OPS[plain]}" if plain in OF_OPS else ""


def missing(who: str, name: str, table: dict[str, str]) -> AttributeError:
    """Return the error for an attribute that is not there."""
    remedy = f": {table[name]}" if name in table else op_for(name)
    in_numpy = hasattr(np.ndarray, name) or hasattr(np, name)
    if not remedy and table is not OF_MODULE and in_numpy:
        remedy = (": NumPy has it, for values without a gradient (x.data); @mg.op makes an op of a "
                  "function and its derivative")
    if not remedy:
        remedy = "".join(f": did you mean {near}?" for near in get_close_matches(name, OPS, 1))
    return AttributeError(f"{who} has no {name}{remedy}", name=name)


class Missing:
    """An attribute that is not there, whose error says what to take.  (With `__getattr__` in its
    place, Python would look every attribute up more slowly.)"""

    def __init__(self, name: str, table: dict[str, str]) -> None:
        self.name, self.table = name, table

    def __get__(self, owner: Any, kind: type) -> NoReturn:
        raise missing(f"a {kind.__name__}", self.name, self.table)


def refuse(kind: type, table: dict[str, str], more: Iterable[str] = ()) -> None:
    """Let a class answer for names that it has not: those of a table, and more."""
    for name in {*table, *more}:
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
refuse(Tensor, OF_TENSOR, [*OPS, *(f"{name}_" for name in OPS), *OF_OPS,
                           *(name for name in dir(np.ndarray) if not name.startswith("_"))])
Tensor.__array__ = _refusal(
    "NumPy cannot differentiate; take the op from minigrad, as mg.exp(x) for np.exp(x), or make "
    "one with @mg.op (to join Tensors, mg.stack or mg.concatenate), or the array with tensor.data")
Tensor.__array_function__ = _of_numpy
Tensor.__invert__ = _refusal("~ has no derivative to train by: write ~x.data for values")
Tensor.__round__ = _refusal("rounding has no derivative to train by: write x.data.round()")
Tensor.__contains__ = _refusal("a Tensor is not searched: write value in x.data")
Tensor.__setitem__ = _refusal("an op's argument is not changed in place: write x.data[index] = "
                              "value for its values, or y = mg.where(condition, value, x)")
