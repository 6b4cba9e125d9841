"""TransformerConfig: the sizes and options of a model, each with its help and its check."""
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace

import numpy as np

from minigrad.ops import NORM_EPS, ROTARY_BASE, RotaryScaling
from minigrad.words import any_of
from model.options import flag, problems

# Who computes a model otherwise than by its own layers: the KV cache's compiled kernel
# (model/kv_cache/), the page (model/look/static/engine.js), programs that read the files of
# model/convert/, and the benchmarks' twin on PyTorch (tests/benchmarks/twin.py).
KERNEL, PAGE, FILES, TWIN = "kernel", "page", "files", "twin"
USERS = KERNEL, PAGE, FILES     # whoever computes models of users
ALL = *USERS, TWIN
# Choices of options, and who knows each.  A new one begins with (): all others refuse it.
POSITIONS = {"learned": ALL, "sinusoidal": USERS, "rotary": ALL}
NORMS = {"layer": ALL, "rms": ALL, "rms_gain": USERS}
ACTIVATIONS = {"gelu": ALL, "relu2": ALL, "gelu_tanh": USERS, "swiglu": USERS}
HEADS = ("n_embd", "n_head", "n_kv_head", "position", "head_dim")
TRAINING = ("dropout", "ngram_dropout")     # options that change nothing but training


def option(default: object, help: str, known_to: Sequence[str] = (), *,
           choices: Mapping[str, Sequence[str]] | None = None, **check: object
           ) -> dataclasses.Field:
    """Return a dataclass field for an option of the network: a `flag`, and who of ALL computes its
    values, finds them in the weights, or refuses by itself what it cannot compute.  An option with
    choices says so of each.  Everybody knows the default: it is the model without the option."""
    plain = flag(
        default,
        help,
        choices=tuple(choices or ()),
        **check)
    return dataclasses.field(default=default,
                             metadata={**plain.metadata, "known_to": choices or known_to})


def unknown_options(config: object, implementer: str) -> list[str]:
    """Return the options of a configuration, or their choices, that one of ALL does not know, so
    that it computes no other model."""
    unknown = []
    for option in fields(config):
        value = getattr(config, option.name)
        if "known_to" not in option.metadata:       # of a subclass
            unknown.append(f"the option {option.name}")
            continue
        known_to = option.metadata["known_to"]
        if isinstance(known_to, Mapping):
            known_to = known_to[value]
        if value != option.default and implementer not in known_to:
            choice = f"{option.name} {value}"
            unknown.append(choice if option.metadata["choices"] else f"the option {option.name}")
    return unknown


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary."""
    vocab_size: int = option(
        MISSING,
        "different characters, V",
        ALL,
        at_least=1)


@dataclass(frozen=True)
class ModelOptions:
    """The model: the options that train.py has flags for, each with its help and its check.  Names
    and meaning are nanoGPT's where it has one.

    docs/engine.md, "To add a setting", names the places that a new option needs.
    """
    block_size: int = option(
        64,
        "characters of a sequence, T",
        ALL,
        at_least=1)
    n_layer: int = option(
        4,
        "blocks of attention and MLP",
        ALL,
        at_least=1)
    n_head: int = option(
        4,
        "attention heads, H",
        ALL,
        at_least=1)
    n_embd: int = option(
        128,
        "channels, C",
        ALL,
        at_least=1)
    dropout: float = option(
        0.0,
        "share of activations dropped in training",
        ALL,
        at_least=0,
        below=1)
    bias: bool = option(False, "biases in linear layers and norms", ALL)
    n_kv_head: int = option(
        None,
        "heads of keys and values, each for several of the queries'; 1 "
        "is multi-query attention",
        USERS,
        unset="n_head",
        at_least=1)
    head_dim: int = option(
        None,
        "channels of a head, D",
        USERS,
        unset="n_embd / n_head",
        at_least=1)
    position: str = option("learned", f"what tells positions apart: {', '.join(POSITIONS)}",
                           choices=POSITIONS)
    norm: str = option("layer", f"before each part of a block and at the end: {', '.join(NORMS)}; "
                                "rms learns nothing, rms_gain a factor for each channel",
                       choices=NORMS)
    qk_norm: bool = option(False, "queries and keys of one size, head by head", ALL)
    activation: str = option("gelu", f"of the MLPs: {', '.join(ACTIVATIONS)}", choices=ACTIVATIONS)
    # Weights that write to the residual stream begin at 0 (Zhang, Dauphin & Ma 2019, "Fixup",
    # section 3).
    zero_init: bool = option(False, "each block begins by passing on what it reads", ALL)
    ngrams: int = option(
        1,
        "n-grams of up to so many characters have embeddings too; 1 for none",
        ALL,
        at_least=1,
        at_most=1000)
    ngram_rows: int = option(
        8192,
        "rows of the table that they share",
        ALL,
        at_least=1)
    ngram_dropout: float = option(
        0.0,
        "share of n-grams left out in training",
        ALL,
        at_least=0,
        below=1)


@dataclass(frozen=True)
class ImportedOptions:
    """What imported models have: options that a run takes from its initial model, without flags."""
    norm_eps: float = option(
        NORM_EPS,
        "added before the root is taken, in all norms",
        USERS,
        above=0)
    n_inner: int = option(
        None,
        "hidden channels of an MLP, F",
        USERS,
        unset="4 n_embd",
        at_least=1)
    attention_bias: bool = option(
        None,
        "biases in the linear layers of attention",
        USERS,
        unset="bias")
    mlp_bias: bool = option(
        None,
        "biases in the linear layers of MLPs",
        USERS,
        unset="bias")
    rotary_base: float = option(
        ROTARY_BASE,
        "of position rotary: the larger, the more slowly the "
        "slowest channels turn",
        USERS,
        above=0)
    attention_out_bias: bool = option(
        None,
        "a bias in the last linear layer of attention",
        USERS,
        unset="attention_bias")
    rotary_factor: float = option(
        1.0,
        "how many times as slowly the slowest channels of position rotary turn, so that longer "
        "texts can be read",
        (KERNEL, FILES),
        at_least=1)
    rotary_length: int = option(
        8192,
        "positions in which a channel makes less than a turn that rotary_factor slows",
        (KERNEL, FILES),
        at_least=1)
    qk_gain: bool = option(
        False,
        "with qk_norm, a factor for each channel of queries and keys, before they are rotated",
        (KERNEL, FILES))
    tied: bool = option(True, "the token table is also the output's weights", USERS)


@dataclass(frozen=True)
class TransformerConfig(ImportedOptions, ModelOptions, Vocabulary):
    """The sizes and options of a Transformer.  Its arguments are those of the three tables, the
    last one first: vocab_size, block_size, ..., tied."""

    def __post_init__(self) -> None:
        mistakes = problems(self) or head_problems(
            self.n_embd,
            self.n_head,
            self.n_kv_head,
            self.position,
            self.head_dim)
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
        return self.resolved().head_dim

    @property
    def rotary_scaling(self) -> RotaryScaling | None:
        """How the rotations of position rotary are slowed; None if they are not."""
        if self.position != "rotary" or self.rotary_factor == 1:
            return None
        return RotaryScaling(self.rotary_factor, self.rotary_length)

    def resolved(self) -> "TransformerConfig":
        """Return the same configuration with no option unset (None)."""
        usual = {"n_kv_head": self.n_head, "head_dim": self.n_embd // self.n_head,
                 "n_inner": 4 * self.n_embd,
                 "attention_bias": self.bias, "mlp_bias": self.bias}
        unset = {name: value for name, value in usual.items() if getattr(self, name) is None}
        resolved = replace(self, **unset)
        if resolved.attention_out_bias is None:
            return replace(resolved, attention_out_bias=resolved.attention_bias)
        return resolved


def head_problems(
        channels: int,
        heads: int,
        kv_heads: int | None = None,
        position: str = "",
        head_dim: int | None = None,
        names: Sequence[str] = HEADS) -> list[str]:
    """Return a line for channels that do not split into heads, and one for heads that cannot share
    those of keys and values, with the remedy.  `names` are what the arguments are called."""
    if min(channels, heads, head_dim or 1) < 1:     # `problems` answers that
        return []
    lines = []
    channels_name, heads_name, kv_heads_name, position_name, head_dim_name = names
    step = 2 * heads if position == "rotary" else heads     # from one possible number to the next
    rest = channels % step
    if head_dim is not None:
        if position == "rotary" and head_dim % 2:
            lines.append(f"{head_dim_name} {head_dim} is odd, and {position_name} rotary turns "
                         f"pairs of channels; take {head_dim_name} {head_dim + 1}")
    elif rest:
        what = "heads"
        if channels % heads == 0:
            what += f" of an even number of channels, which {position_name} rotary needs"
        fits = [str(n) for n in (channels - rest, channels - rest + step) if n]
        lines.append(f"{channels_name} {channels} does not split into {heads_name} {heads} {what}; "
                     f"take {channels_name} {any_of(fits)}")
    if kv_heads and kv_heads >= 1 and heads % kv_heads:
        fits = [str(n) for n in range(1, min(heads, 1000) + 1) if heads % n == 0]
        lines.append(f"{heads_name} {heads} heads cannot share {kv_heads_name} {kv_heads} evenly; "
                     f"take {kv_heads_name} {any_of(fits)}")
    return lines
