"""TransformerConfig: the sizes and options of a model, each with its help and its check."""
from dataclasses import MISSING, dataclass, fields, replace

import numpy as np

from minigrad import formulas
from minigrad.ops import NORM_EPS, ROTARY_BASE
from minigrad.words import any_of
from model.options import flag, problems

POSITIONS = ("learned", "sinusoidal", "rotary")
ACTIVATIONS = (*formulas.ACTIVATIONS, "swiglu")     # kernels number them in this order
NORMS = ("layer", "rms", "rms_gain")
TRAINING = ("dropout", "ngram_dropout")     # options that change nothing but training


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary."""
    vocab_size: int = flag(MISSING, "different characters, V", at_least=1)


@dataclass(frozen=True)
class ModelOptions:
    """The model: the options that train.py has flags for, each with its help and its check.  Names
    and meaning are nanoGPT's where it has one.

    docs/engine.md, "To add a setting", names the places that a new option needs.
    """
    block_size: int = flag(64, "characters of a sequence, T", at_least=1)
    n_layer: int = flag(4, "blocks of attention and MLP", at_least=1)
    n_head: int = flag(4, "attention heads, H", at_least=1)
    n_embd: int = flag(128, "channels, C", at_least=1)
    dropout: float = flag(0.0, "share of activations dropped in training", at_least=0, below=1)
    bias: bool = flag(False, "biases in linear layers and norms")
    n_kv_head: int = flag(None, "heads of keys and values, each for several of the queries'; 1 is "
                                "multi-query attention", unset="n_head", at_least=1)
    position: str = flag("learned", f"what tells positions apart: {', '.join(POSITIONS)}",
                         choices=POSITIONS)
    norm: str = flag("layer", f"before each part of a block and at the end: {', '.join(NORMS)}; "
                              "rms learns nothing, rms_gain a factor for each channel",
                     choices=NORMS)
    qk_norm: bool = flag(False, "queries and keys of one size, head by head")
    activation: str = flag("gelu", f"of the MLPs: {', '.join(ACTIVATIONS)}", choices=ACTIVATIONS)
    # Weights that write to the residual stream begin at 0 (Zhang, Dauphin & Ma 2019, "Fixup",
    # section 3).
    zero_init: bool = flag(False, "each block begins by passing on what it reads")
    ngrams: int = flag(1, "n-grams of up to so many characters have embeddings too; 1 for none",
                       at_least=1, at_most=1000)
    ngram_rows: int = flag(8192, "rows of the table that they share", at_least=1)
    ngram_dropout: float = flag(0.0, "share of n-grams left out in training", at_least=0, below=1)


@dataclass(frozen=True)
class ImportedOptions:
    """What imported models have: options that a run takes from its initial model, without flags."""
    norm_eps: float = flag(NORM_EPS, "added before the root is taken, in the norms of the blocks "
                                     "and the last", above=0)
    n_inner: int = flag(None, "hidden channels of an MLP, F", unset="4 n_embd", at_least=1)
    attention_bias: bool = flag(None, "biases in the linear layers of attention", unset="bias")
    mlp_bias: bool = flag(None, "biases in the linear layers of MLPs", unset="bias")
    rotary_base: float = flag(ROTARY_BASE, "of position rotary: the larger, the more slowly the "
                                           "slowest channels turn", above=0)
    tied: bool = flag(True, "the token table is also the output's weights")


@dataclass(frozen=True)
class TransformerConfig(ImportedOptions, ModelOptions, Vocabulary):
    """The sizes and options of a Transformer.  Its arguments are those of the three tables, the
    last one first: vocab_size, block_size, ..., tied."""

    def __post_init__(self) -> None:
        mistakes = problems(self) or problems_of_heads(self.n_embd, self.n_head, self.n_kv_head,
                                                       self.position)
        if mistakes:
            raise ValueError(mistakes[0])
        for field in fields(self):      # NumPy's numbers round otherwise, and make float64 of more
            if isinstance(value := getattr(self, field.name), np.generic):
                object.__setattr__(self, field.name, value.item())

    kind = None         # in a checkpoint; an EncoderDecoder's has a name

    def check_claim(self, weights: int) -> None:
        """Refuse a file that claims more layers than its number of weights can fill, before a model
        of them is built."""
        if self.n_layer > weights:
            raise ValueError(f"it claims {self.n_layer} layers, and holds {weights} weights")

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values, G."""
        return self.resolved().n_kv_head

    @property
    def d_head(self) -> int:
        """The number of channels of a head, D."""
        return self.n_embd // self.n_head

    def resolved(self) -> "TransformerConfig":
        """Return the same configuration with no option unset (None)."""
        usual = {"n_kv_head": self.n_head, "n_inner": 4 * self.n_embd,
                 "attention_bias": self.bias, "mlp_bias": self.bias}
        unset = {name: value for name, value in usual.items() if getattr(self, name) is None}
        return replace(self, **unset)


def problems_of_heads(channels: int, heads: int, kv_heads: int | None = None, position: str = "",
                      mark: str = "") -> list[str]:
    """Return a line for channels that do not split into heads, and one for heads that cannot share
    those of keys and values, with the remedy.  `mark` stands before each name: -- for flags."""
    if min(channels, heads) < 1:        # `problems` answers that
        return []
    lines = []
    step = 2 * heads if position == "rotary" else heads     # from one possible n_embd to the next
    rest = channels % step
    if rest:
        what = "heads"
        if channels % heads == 0:
            what += f" of an even number of channels, which {mark}position rotary needs"
        fits = [str(n) for n in (channels - rest, channels - rest + step) if n]
        lines.append(f"{mark}n_embd {channels} does not split into {mark}n_head {heads} {what}; "
                     f"take {mark}n_embd {any_of(fits)}")
    if kv_heads and kv_heads >= 1 and heads % kv_heads:
        fits = [str(n) for n in range(1, min(heads, 1000) + 1) if heads % n == 0]
        lines.append(f"{mark}n_head {heads} heads cannot share {mark}n_kv_head {kv_heads} evenly; "
                     f"take {mark}n_kv_head {any_of(fits)}")
    return lines
