"""The KV cache: keys and values are kept, and a compiled kernel draws from them."""
from model.config import TRAINING

# The options of TransformerConfig that a Decoder and model/look/static/engine.js compute, or find
# in the weights, or that shape training alone.  Add a new option only when both compute it.
OPTIONS = dict.fromkeys("""
    vocab_size block_size n_layer n_head n_embd bias n_kv_head qk_norm zero_init ngrams ngram_rows
    norm_eps n_inner attention_bias mlp_bias rotary_base tied""".split() + [*TRAINING])
OPTIONS |= {"position": ("learned", "sinusoidal", "rotary"),
            "norm": ("layer", "rms", "rms_gain"),
            "activation": ("gelu", "gelu_tanh", "relu2", "swiglu")}
