"""Count a transformer's parameters, by the shapes of its arrays, and its floating-point operations
(FLOPs), so that the largest model needs no memory.

Shapes: L layers, H heads of D channels, C channels in all, V vocabulary, B batch, T time.
"""
import dataclasses
import functools
import math
from collections import Counter

from minigrad import AdamW, Muon
from model.config import TransformerConfig
from model.transformer import Transformer

BLOCK = "blocks.0."     # what the names of the first block's parameters begin with
# Modules, and what their part is called here.  Another one is called by its own name.
PARTS = {"attention.out": "output", "mlp.up": "up", "mlp.down": "down", "mlp.gate": "gate",
         "norm1": "norms", "norm2": "norms", "norm": "norms", "attention.query_norm": "norms",
         "attention.key_norm": "norms", "token_embedding": "token embedding",
         "position_embedding": "position embedding", "ngram_embedding": "n-gram embedding",
         "lm_head": "output embedding"}


def parameter_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a model's parameters, in its order, without memory for them.

    Raises
    ------
    ValueError : one of them is larger than any array of NumPy.
    """
    try:
        model = Transformer(config, dtype=None)
    except ValueError as error:
        raise ValueError(f"no machine has the memory for n_embd {config.n_embd}, vocab_size "
                         f"{config.vocab_size}, ngram_rows {config.ngram_rows}; take less of one "
                         "of them") from error
    return {name: p.shape for name, p in model.named_parameters()}


def layer_parameters(config: TransformerConfig) -> Counter[str]:
    """Return the number of parameters of each part of a block."""
    parts = _by_part(_layer_shapes(config))
    head_parameters = parts.pop("attention.qkv") // (config.n_head + 2 * config.kv_heads)
    parts["query"] = config.n_head * head_parameters
    parts["key"] = parts["value"] = config.kv_heads * head_parameters
    return parts


def outside_layers(config: TransformerConfig) -> Counter[str]:
    """Return the number of parameters of each part outside the blocks.  A tied output is the token
    embedding again, which counts once."""
    return _by_part({name: shape for name, shape in _shapes(config).items()
                     if not name.startswith(BLOCK)})


def _by_part(shapes):
    parts = Counter()
    for name, shape in shapes.items():
        module = name.rpartition(".")[0]
        parts[PARTS.get(module, module)] += math.prod(shape)
    return parts


@functools.lru_cache        # a single count of training asks for them ten times
def _shapes(config):
    """Return the shapes of all parameters outside the blocks, and of those of the first one."""
    return parameter_shapes(dataclasses.replace(config, n_layer=1))


def _layer_shapes(config):
    return {name.removeprefix(BLOCK): shape for name, shape in _shapes(config).items()
            if name.startswith(BLOCK)}


def layer_matrix_weights(config: TransformerConfig) -> int:
    """Return the number of weights of a block that multiply; Muon steps these, where it is used."""
    return sum(math.prod(shape) for shape in _layer_shapes(config).values()
               if len(shape) == 2)


def parameters(config: TransformerConfig) -> int:
    """Return the number of parameters of the whole model."""
    return config.n_layer * layer_parameters(config).total() + outside_layers(config).total()


def trained(config: TransformerConfig) -> int:
    """Return the number of parameters that are trained: of a model with an adapter, its pairs."""
    if not config.kind:
        return parameters(config)
    from model.lora.adapted import AdaptedTransformer
    return sum(p.size for p in AdaptedTransformer(config, dtype=None).parameters())


def state(config: TransformerConfig, optimizer: str) -> int:
    """Return how many numbers the optimiser of `--optimizer` keeps for a model's parameters."""
    if config.kind:
        return len(AdamW.STATE) * trained(config)
    by_muon = config.n_layer * layer_matrix_weights(config) if optimizer == "muon" else 0
    return len(Muon.STATE) * by_muon + len(AdamW.STATE) * (parameters(config) - by_muon)


def cached(config: TransformerConfig) -> int:
    """Return how many numbers are kept for each token read: its keys and values in every layer."""
    return 2 * config.n_layer * config.kv_heads * config.d_head


def forward_flops(config: TransformerConfig) -> tuple[float, float]:
    """Count the additions and multiplications for one token: in products with weights, and in
    attention.

    Each weight that multiplies costs 2: every matrix of the layers, and the output's, which is the
    token embedding or has its size.  An embedding lookup costs nothing.  In every head a query
    costs 2 D for the score of each key and 2 D to mix its value: 4 H D a layer for each key, and
    causal attention has (T + 1) / 2 keys on average over a full block.  Norms, softmax, activations
    and additions are not counted.  Backward costs twice as much as forward.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1 and table 1,
    which leaves out the output and counts T keys for each query; Chowdhery et al. 2022, "PaLM",
    appendix B, and nanoGPT, 6 N + 12 L C T for training, do the latter too.
    """
    weights = config.n_layer * layer_matrix_weights(config) + config.vocab_size * config.n_embd
    keys = (config.block_size + 1) / 2
    return 2 * weights, 4 * config.n_layer * config.n_head * config.d_head * keys
