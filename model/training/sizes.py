"""A transformer's parameters, operations and bytes, by formula: the largest model needs no memory.

Shapes: L layers, H heads of D channels, C = H D channels in all, V vocabulary, B batch, T time.
"""
import dataclasses

from model.transformer import TransformerConfig


def of_a_layer(config: TransformerConfig) -> dict[str, int]:
    """Return the number of parameters of each part of a block."""
    C, D, H, H_kv = config.n_embd, config.d_head, config.n_head, config.kv_heads

    def linear(inputs, outputs):
        return outputs * (inputs + config.bias)
    return {"query": linear(C, H * D), "key": linear(C, H_kv * D), "value": linear(C, H_kv * D),
            "output": linear(H * D, C), "up": linear(C, 4 * C), "down": linear(4 * C, C),
            "norms": 2 * of_a_norm(config)}


def of_a_norm(config: TransformerConfig) -> int:
    """Return the number of parameters of a norm: gains, and with biases shifts; 0 for RMS norm."""
    return 0 if config.norm == "rms" else config.n_embd * (1 + config.bias)


def outside_layers(config: TransformerConfig) -> dict[str, int]:
    """Return the number of parameters of each part outside the blocks.  The output is the token
    embedding again, which counts once."""
    C = config.n_embd
    learnt = config.position == "learned"
    return {"token embedding": config.vocab_size * C,
            "n-gram embedding": config.ngram_rows * C if config.ngrams > 1 else 0,
            "position embedding": config.block_size * C if learnt else 0,
            "norms": of_a_norm(config)}


def parameters(config: TransformerConfig) -> int:
    """Return the number of parameters of the whole model."""
    return config.n_layer * sum(of_a_layer(config).values()) + sum(outside_layers(config).values())


def cached(config: TransformerConfig) -> int:
    """Return how many numbers are kept for each token read: its keys and values in every layer."""
    return 2 * config.n_layer * config.kv_heads * config.d_head


def forward_flops(config: TransformerConfig) -> tuple[float, float]:
    """Count the additions and multiplications for one token: in products with weights, and in
    attention.

    Each weight that multiplies costs 2: every matrix of the layers, and the output's, which is the
    token embedding.  An embedding lookup costs nothing.  In every head a query costs 2 D for the
    score of each key and 2 D to mix its value: 4 C a layer for each key, and causal attention has
    (T + 1) / 2 keys on average over a full block.  Norms, softmax, activations and additions are
    not counted.  Backward costs twice as much as forward.

    Source: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1 and table 1,
    which leaves out the output and counts T keys for each query; Chowdhery et al. 2022, "PaLM",
    appendix B, and nanoGPT, 6 N + 12 L C T for training, do the latter too.
    """
    matrices = of_a_layer(dataclasses.replace(config, bias=False))
    weights = config.n_layer * (sum(matrices.values()) - matrices["norms"])
    weights += config.vocab_size * config.n_embd
    keys = (config.block_size + 1) / 2
    return 2 * weights, 4 * config.n_layer * config.n_embd * keys


def training_bytes(config: TransformerConfig, batch_size: int) -> int:
    """Return the bytes of all arrays at the peak of a training step in float32, to about a tenth.

    Four floats for each parameter: itself, its gradient, AdamW's two means.  For each token, a
    block keeps 12 C for backward, including the MLP's 4 C before and after GELU; 4 C outside the
    blocks; and three times the V logits when the loss is computed.
    """
    C, V = config.n_embd, config.vocab_size
    of_a_token = config.n_layer * 12 * C + 4 * C + 3 * V
    return 4 * (4 * parameters(config) + batch_size * config.block_size * of_a_token)
