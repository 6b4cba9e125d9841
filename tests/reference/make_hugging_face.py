"""Write what GPT-2, Llama, Qwen2, Qwen3 and Arcee of the library transformers compute.

    python -m tests.reference.make_hugging_face         with '.[interop]'

families.npz, for tests/test_reference.py, is in float64, from weights that float32 represents
exactly:

    transformers                                the version that computed it
    <model>/config                              JSON: the TransformerConfig
    <model>/{ids,targets,logits,loss}           one pass over one batch
    <model>/{weight,gradient}/<parameter>       by minigrad's names, in its layouts

hugging_face.npz, for the tests of model/convert, which then need no transformers, is in float32:

    <model>/config                              JSON: a config.json
    <model>/{ids,logits}                        one pass over one batch
    <model>/weights/<parameter>                 as transformers stores it
"""
import json
from functools import partial

import numpy as np
import torch
import transformers
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

from model import TransformerConfig
from model.convert import families
from tests.kit import stored as tensors
from tests.reference.make_reference import one_pass, write

SIZE = dict(vocab_size=7, block_size=6)
GPT2 = SIZE | dict(n_head=3, n_embd=9, bias=True)
LLAMA = SIZE | dict(position="rotary", norm="rms_gain", activation="swiglu")
MODELS = {
    "GPT-2": TransformerConfig(**GPT2, n_layer=2, activation="gelu_tanh"),
    "GPT-2, exact GELU": TransformerConfig(**GPT2, n_layer=1, activation="gelu", n_inner=11,
                                           norm_eps=0.01, tied=False),
    "Llama": TransformerConfig(**LLAMA, n_layer=2, n_head=4, n_embd=16, n_kv_head=2, n_inner=11,
                               tied=False, norm_eps=0.01, rotary_base=30.0),
    "Llama, one head of keys": TransformerConfig(**LLAMA, n_layer=1, n_head=2, n_embd=12,
                                                 n_kv_head=1, n_inner=5, attention_bias=True),
    "Llama with biases": TransformerConfig(**LLAMA, n_layer=1, n_head=3, n_embd=12, n_inner=7,
                                           attention_bias=True, mlp_bias=True, tied=False,
                                           norm_eps=1e-6),
    "Qwen3": TransformerConfig(**LLAMA, n_layer=2, n_head=3, n_embd=10, head_dim=6, n_kv_head=1,
                               n_inner=7, qk_norm=True, qk_gain=True, norm_eps=0.01)}
BATCH, TIME = 2, 5      # below block_size: one position is never reached, and has gradient 0
STD = 0.5               # at the initial 0.02, attention is so even that a wrong scale hardly shows

STORED_GPT2 = dict(vocab_size=13, n_positions=9, n_layer=1, n_head=2, n_embd=6,
                   layer_norm_epsilon=1e-2)
STORED_LLAMA = dict(vocab_size=13, max_position_embeddings=9, num_hidden_layers=1,
                    num_attention_heads=4, num_key_value_heads=2, hidden_size=24,
                    intermediate_size=11, rms_norm_eps=1e-2)
STORED = {      # name -> model_type and options, in the words of transformers
    "gpt2": ("gpt2", STORED_GPT2 | dict(n_layer=2)),
    "gpt2 of other parts": ("gpt2", STORED_GPT2 | dict(n_inner=7, activation_function="gelu",
                                                       tie_word_embeddings=False)),
    "llama": ("llama", STORED_LLAMA | dict(num_hidden_layers=2, rope_parameters={
        "rope_type": "default", "rope_theta": 20.0})),
    "llama of other parts": ("llama", STORED_LLAMA | dict(
        num_key_value_heads=1, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "arcee": ("arcee", STORED_LLAMA | dict(num_key_value_heads=4, attention_bias=True)),
    "qwen2": ("qwen2", STORED_LLAMA | dict(rope_theta=20.0, tie_word_embeddings=True)),
    "llama of long texts": ("llama", STORED_LLAMA | dict(rope_parameters={
        "rope_type": "llama3", "rope_theta": 20.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 40})),
    "qwen3": ("qwen3", STORED_LLAMA | dict(rope_theta=20.0, head_dim=8))}


class Doubled:
    """PyTorch for code that takes norms and angles in float32: float64 in its place."""
    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def model_of(model_type, options, std, gain, dtype, rng):
    """Return a model with random weights that are exact in float32; around `gain` those that are
    vectors, or around what they are at first if it is None."""
    config = transformers.AutoConfig.for_model(model_type, bos_token_id=None, eos_token_id=None,
                                               **options)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    assert type(model).__name__ == families.FAMILIES[model_type].architecture
    with torch.no_grad():
        for p in model.parameters():
            around = p.numpy() if gain is None else gain
            drawn = std * rng.standard_normal(p.shape) + (around if p.ndim == 1 else 0)
            p.copy_(torch.from_numpy(drawn.astype(np.float32)))
    return model


def ours(config, theirs):
    """Return the arrays as minigrad names and lays them out."""
    return dict(families.our_parameters(config, families.family_of(config), tensors(theirs)))


def computed(config, rng):
    """Return what a model computes of one random batch."""
    family = families.family_of(config)
    model = model_of(family.name, families.settings(config, family), STD, None,
                     torch.float64, rng)
    batch = rng.integers(config.vocab_size, size=(2, BATCH, TIME))
    return one_pass(config, model, lambda ids: model(ids).logits, batch, partial(ours, config))


def stored(model_type, options, rng):
    """Return a model as transformers stores it, and its logits."""
    model = model_of(model_type, options, 0.3, 1.0, torch.float32, rng)
    ids = rng.integers(13, size=(3, 9))
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)).logits.numpy()
    tied = model.config.tie_word_embeddings
    return {"config": np.array(json.dumps(model.config.to_dict(), default=str)), "ids": ids,
            "logits": logits, **{f"weights/{name}": a.numpy()
                                 for name, a in model.state_dict().items()
                                 if not (tied and name == "lm_head.weight")}}


if __name__ == "__main__":
    torch.set_num_threads(1)        # one order of summation
    version = transformers.__version__
    rng = np.random.default_rng(0)
    write("hugging_face.npz", {name: stored(*of, rng) for name, of in STORED.items()},
          transformers=version)
    modeling_llama.torch = modeling_qwen3.torch = Doubled()
    rng = np.random.default_rng(0)
    write("families.npz", {name: computed(config, rng) for name, config in MODELS.items()},
          transformers=version)
