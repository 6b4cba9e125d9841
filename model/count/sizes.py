"""Count a transformer's parameters and floating-point operations (FLOPs) by formulas, so that the
largest model needs no memory.

Shapes: L layers, H heads of D channels, C = H D channels in all, V vocabulary, B batch, T time.
"""
import dataclasses
from collections import Counter

from minigrad import AdamW, Muon
from model.config import TransformerConfig


def of_a_layer(config: TransformerConfig) -> Counter[str]:
    """Return the number of parameters of each part of a block."""
    config = config.resolved()
    C = config.n_embd
    F = config.n_inner
    inputs = C + config.attention_bias      # of an output of a linear layer, its bias among them
    of_keys = config.n_kv_head * config.d_head * inputs
    parts = {"query": config.n_head * config.d_head * inputs, "key": of_keys, "value": of_keys,
             "output": C * inputs,
             "up": F * (C + config.mlp_bias),
             "down": C * (F + config.mlp_bias),
             "norms": 2 * of_a_norm(config)}
    if config.activation == "swiglu":
        parts["gate"] = parts["up"]
    return Counter(parts)


def outside_layers(config: TransformerConfig) -> Counter[str]:
    """Return the number of parameters of each part outside the blocks.  A tied output is the token
    embedding again, which counts once."""
    C = config.n_embd
    parts = {"token embedding": config.vocab_size * C, "norms": of_a_norm(config)}
    if config.ngrams > 1:
        parts["n-gram embedding"] = config.ngram_rows * C
    if config.position == "learned":
        parts["position embedding"] = config.block_size * C
    if not config.tied:
        parts["output embedding"] = config.vocab_size * C
    return Counter(parts)


def of_a_norm(config: TransformerConfig) -> int:
    """Return the number of parameters of a norm: gains and biases, gains, or none."""
    vectors = {"layer": 1 + config.bias, "rms_gain": 1, "rms": 0}
    return vectors[config.norm] * config.n_embd


def matrices_of_a_layer(config: TransformerConfig) -> int:
    """Return the number of weights of a block that multiply; Muon steps these, where it is used."""
    sizes = of_a_layer(dataclasses.replace(config, bias=False, attention_bias=False,
                                           mlp_bias=False))
    return sizes.total() - sizes["norms"]


def parameters(config: TransformerConfig) -> int:
    """Return the number of parameters of the whole model."""
    return config.n_layer * of_a_layer(config).total() + outside_layers(config).total()


def state(config: TransformerConfig, optimizer: str) -> int:
    """Return how many numbers the optimiser of `--optimizer` keeps for a model's parameters."""
    by_muon = config.n_layer * matrices_of_a_layer(config) if optimizer == "muon" else 0
    return len(Muon.STATE) * by_muon + len(AdamW.STATE) * (parameters(config) - by_muon)


def cached(config: TransformerConfig) -> int:
    """Return how many numbers are kept for each token read: its keys and values in every layer."""
    return 2 * config.n_layer * config.kv_heads * config.d_head


def forward_flops(config: TransformerConfig) -> tuple[float, float]:
    """Count the additions and multiplications for one token: in products with weights, and in
    attention.

    Each weight that multiplies costs 2: every matrix of the layers, and the output's, which is the
    token embedding or has its size.  An embedding lookup costs nothing.  In every head a query
    costs 2 D for the score of each key and 2 D to mix its value: 4 C a layer for each key, and
    causal attention has (T + 1) / 2 keys on average over a full block.  Norms, softmax, activations
    and additions are not counted.  Backward costs twice as much as forward.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1 and table 1,
    which leaves out the output and counts T keys for each query; Chowdhery et al. 2022, "PaLM",
    appendix B, and nanoGPT, 6 N + 12 L C T for training, do the latter too.
    """
    weights = config.n_layer * matrices_of_a_layer(config) + config.vocab_size * config.n_embd
    keys = (config.block_size + 1) / 2
    return 2 * weights, 4 * config.n_layer * config.n_embd * keys
