"""Writes hugging_face.npz: small models of GPT-2's, Llama's and Arcee's class with random weights,
as transformers stores them, and the logits that it computes.  The tests of model/convert then need
no transformers.

    python tests/reference/make_hugging_face.py         with '.[interop]'
"""
import json
import pathlib

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

from model.convert.families import FAMILIES

SHARED = dict(bos_token_id=None, eos_token_id=None)
GPT2 = dict(vocab_size=13, n_positions=9, n_layer=1, n_head=2, n_embd=6, layer_norm_epsilon=1e-2)
LLAMA = dict(vocab_size=13, max_position_embeddings=9, num_hidden_layers=1, num_attention_heads=4,
             num_key_value_heads=2, hidden_size=24, intermediate_size=11, rms_norm_eps=1e-2)
MODELS = {
    "gpt2": ("gpt2", GPT2 | dict(n_layer=2)),
    "gpt2 of other parts": ("gpt2", GPT2 | dict(n_inner=7, activation_function="gelu",
                                                tie_word_embeddings=False)),
    "llama": ("llama", LLAMA | dict(num_hidden_layers=2, rope_parameters={
        "rope_type": "default", "rope_theta": 20.0})),
    "llama of other parts": ("llama", LLAMA | dict(num_key_value_heads=1, attention_bias=True,
                                                   mlp_bias=True, tie_word_embeddings=True)),
    "arcee": ("arcee", LLAMA | dict(num_key_value_heads=4, attention_bias=True)),
}


def main():
    arrays = {"transformers": np.array(transformers.__version__)}
    rng = np.random.default_rng(0)
    for name, (model_type, options) in MODELS.items():
        config = transformers.AutoConfig.for_model(model_type, **options, **SHARED)
        model = AutoModelForCausalLM.from_config(config).eval()
        assert type(model).__name__ == FAMILIES[model_type].architecture
        tied = model.config.tie_word_embeddings
        with torch.no_grad():
            for parameter in model.parameters():
                numbers = 0.3 * rng.standard_normal(parameter.shape)
                parameter[...] = torch.tensor(numbers + (parameter.ndim == 1))
            ids = rng.integers(13, size=(3, 9))
            logits = model(torch.tensor(ids)).logits
        arrays |= {f"{name}/config": np.array(json.dumps(config.to_dict(), default=str)),
                   f"{name}/ids": ids, f"{name}/logits": logits.numpy()}
        arrays |= {f"{name}/weights/{key}": a.numpy() for key, a in model.state_dict().items()
                   if not (tied and key == "lm_head.weight")}
    path = pathlib.Path(__file__).with_name("hugging_face.npz")
    np.savez_compressed(path, **arrays)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
