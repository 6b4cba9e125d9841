"""A model with an adapter: pairs of small matrices beside weights that stay as they are.

A linear layer W gets a pair A (r, inputs), B (outputs, r), and computes
y = W x + (alpha / r) B (A x).  A is drawn, and B begins at zero, so that the model begins as its
base.  Only the pairs are trained and saved; W, which may be packed, is frozen, and never changes.

Source: Hu et al. 2021, "LoRA", section 4.1; on packed weights, Dettmers et al. 2023, "QLoRA",
section 2.
"""
import dataclasses
import math
from collections.abc import Callable, Iterator
from operator import attrgetter

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad.core import Array, op
from minigrad.nn import Linear, Rng, full, normal
from minigrad.packed import PackedTensor, freeze
from minigrad.random import generator
from minigrad.words import shown
from model.config import TransformerConfig
from model.layers import MLP
from model.lora.loss import frozen_cross_entropy
from model.options import flag
from model.transformer import Block, Transformer

# The linear layers of a block, by the names that --lora_layers takes
LAYERS = {"qkv": "attention.qkv", "out": "attention.out", "gate": "mlp.gate", "up": "mlp.up",
          "down": "mlp.down"}
PAIR = ("lora_a", "lora_b")


@dataclasses.dataclass(frozen=True)
class AdaptedConfig(TransformerConfig):
    """The configuration of a base, and that of its adapter."""
    lora: int = flag(8, "rank of the pairs, r", at_least=1)
    lora_alpha: float = flag(16.0, "a pair is multiplied by alpha / r", above=0)
    lora_layers: str = flag(",".join(LAYERS), "the layers that have pairs, with commas between")
    base: str = flag("", "path of the checkpoint whose weights these are")
    base_seal: str = flag("", "its seal, by which it is known again")

    kind = "lora"       # in a checkpoint


class AdaptedLinear(Linear):
    """A linear layer and its pair: (..., inputs) -> (..., outputs)."""

    def __init__(
            self,
            linear: Linear,
            rank: int,
            scale: float,
            rng: Rng,
            dtype: type) -> None:
        outputs, inputs = linear.weight.shape
        self.weight = linear.weight
        if linear.bias is not None:
            self.bias = linear.bias
        self.scale = scale
        # The variance of PyTorch's linear layers, which PEFT takes for A, too.
        std = math.sqrt(1 / (3 * inputs))
        self.lora_a = normal(
            rng,
            (rank, inputs),
            std,
            dtype)
        self.lora_b = full((outputs, rank), 0, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        low = self.scale * mg.linear(x, self.lora_a)                        # (..., r)
        return mg.linear(x, self.weight, self.bias) + mg.linear(low, self.lora_b)


class AdaptedMLP(MLP):
    """An MLP whose linear layers are called one by one, as each may have a pair, or be packed:
    (..., C) -> (..., C)."""

    def __init__(self, mlp: MLP) -> None:
        vars(self).update(vars(mlp))

    def __call__(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            return super().__call__(x)
        h = self.up(x)
        if self.activation == "relu2":
            h = mg.relu(h)
            return self.down(h * h)
        approximate = "tanh" if self.activation == "gelu_tanh" else "none"
        return self.down(mg.gelu(h, approximate))


class AdaptedBlock(Block):
    """A block that is computed again for backward, so that only its input is kept until then
    (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 3)."""

    def __init__(self, block: Block) -> None:
        vars(self).update(vars(block))
        self.mlp = AdaptedMLP(block.mlp)

    def __call__(self, x: Tensor, rng: Rng = None) -> Tensor:
        if not x.requires_grad:     # the first one: no gradient would come to its pairs
            x = Tensor(x.data, requires_grad=True)
        return computed_again(x, super().__call__, rng)


@op(register=False)
def computed_again(x: Array, compute: Callable, rng: Rng):
    """compute(x, rng), of which backward keeps x alone: it computes the value again, with the same
    random numbers, and sends its gradient down to x and to the parameters."""
    before = rng and rng.bit_generator.state
    with mg.no_grad():
        y = compute(Tensor(x), rng).data

    def dx(g):
        leaf = Tensor(x, requires_grad=True)
        now = rng and rng.bit_generator.state
        if rng:
            rng.bit_generator.state = before
        compute(leaf, rng).backward(g)
        if rng:
            rng.bit_generator.state = now
        return leaf.grad
    return y, (dx,)


class AdaptedTransformer(Transformer):
    """A Transformer whose parameters are the pairs of its adapter.  `take_base` gives it the
    weights of its base, which are constants, and belong to no checkpoint of it.

    Parameters
    ----------
    seed : of the initial pairs.
    dtype : as a Transformer's.

    Raises
    ------
    ValueError : the base cannot have such an adapter.
    """
    Config = AdaptedConfig

    def __init__(self, config: AdaptedConfig, seed: int = 0, dtype: type = np.float32) -> None:
        super().__init__(config, dtype=None)
        if mistakes := adapter_problems(config):
            raise ValueError(mistakes[0])
        rng = generator(seed, "weights", 1)
        scale = config.lora_alpha / config.lora
        self.blocks = [AdaptedBlock(block) for block in self.blocks]
        for block in self.blocks:
            for name in config.lora_layers.split(","):
                part, layer = LAYERS[name].split(".")
                module = getattr(block, part)
                adapted = AdaptedLinear(
                    getattr(module, layer),
                    config.lora,
                    scale,
                    rng,
                    dtype)
                setattr(module, layer, adapted)

    def __repr__(self) -> str:
        c = self.config
        count = sum(p.size for p in self.parameters())
        return (f"AdaptedTransformer, an adapter of {count:,} numbers: rank {c.lora}, alpha "
                f"{c.lora_alpha:g}, of {c.lora_layers.replace(',', ', ')} in each block")

    def next_loss(self, x: Tensor, targets: np.ndarray) -> Tensor:
        """Return the mean of -log p of the targets, as `Transformer.next_loss`, with only a few
        rows of logits in memory at a time, since the output's weights are frozen."""
        return frozen_cross_entropy(x, self.output_weight, targets)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every matrix of a pair, with its path, such as `blocks.0.attention.qkv.lora_a`."""
        for path, p in super().named_parameters():
            if path.endswith(PAIR):
                yield path, p

    def take_base(self, base: Transformer) -> None:
        """Take the weights of a base, which are shared, and freeze them.  Of its learned positions
        only those of this model's block are taken.

        Raises
        ------
        ValueError : they are of another configuration.
        """
        dtype = self.parameters()[0].dtype
        modules = dict(self.named_modules())
        expected = {path: p.shape for path, p in Transformer.named_parameters(self)
                    if not path.endswith(PAIR)}
        weights = dict(base.named_parameters())
        if weights.keys() != expected.keys():
            different = min(weights.keys() ^ expected.keys())
            raise ValueError(f"only one of them has {shown(different)}")
        for path, p in weights.items():
            if path == "position_embedding.weight" and len(p.data) > self.config.block_size:
                p = Tensor(p.data[:self.config.block_size].copy())
            if p.shape != expected[path]:
                raise ValueError(f"{path} has the shape {list(p.shape)} there, and "
                                 f"{list(expected[path])} here")
            if path == "ngram_embedding.weight" or not isinstance(p, PackedTensor):
                p = Tensor(p.data.astype(dtype, copy=False))    # its rows are summed as floats
            freeze(p)
            module, _, name = path.rpartition(".")
            setattr(modules[module], name, p)


def adapter_problems(config: AdaptedConfig) -> list[str]:
    """Return a line for each mistake of an adapter: layers that are not there, or a rank that is
    above the smaller side of one of their matrices."""
    block = Transformer(dataclasses.replace(config, n_layer=1), dtype=None).blocks[0]
    linears = {name: attrgetter(path)(block) for name, path in LAYERS.items()}
    known = [name for name, linear in linears.items() if linear is not None]
    names = config.lora_layers.split(",")
    lines = []
    for name in names:
        if name not in known:
            lines.append(f"lora_layers {shown(name) or repr(name)} is no layer of this model, "
                         f"whose blocks have {', '.join(known)}; give some of these, with commas "
                         "between")
        elif names.count(name) > 1:
            lines.append(f"lora_layers has {shown(name)} twice; give each layer once")
        elif config.lora > (most := min(linears[name].weight.shape)):
            lines.append(f"lora {config.lora} is above {most}, the smaller side of the matrix "
                         f"{name}; take a rank of at most {most}")
    return lines[:1]
