"""Writes families.npz: what GPT-2 and Llama of the library transformers compute.
tests/test_reference.py compares minigrad with it.

Run by hand, in an environment that has transformers and PyTorch too:

    python -m tests.reference.make_families

It computes in float64, from weights that float32 represents exactly.  In the file:

    transformers                                the version that computed it
    <model>/config                              JSON: the TransformerConfig
    <model>/{ids,targets,logits,loss}           one pass over one batch
    <model>/{weight,gradient}/<parameter>       by minigrad's names, in its layouts
"""
import json
import pathlib
from dataclasses import asdict

import numpy as np

from model import TransformerConfig

try:
    import torch
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    from transformers.models.llama import modeling_llama
except ImportError:
    raise SystemExit("make_families.py needs transformers and PyTorch: pip install transformers "
                     "torch") from None

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
                                           norm_eps=1e-6)}
BATCH, TIME = 2, 5      # below block_size: one position is never reached, and has gradient 0
STD = 0.5               # at the initial 0.02, attention is so even that a wrong scale hardly shows
GPT2_NAMES = {
    "transformer.": "", "wte.": "token_embedding.", "wpe.": "position_embedding.",
    "h.": "blocks.", "ln_1.": "norm1.", "ln_2.": "norm2.", "ln_f.": "norm.",
    "attn.c_attn.": "attention.qkv.", "attn.c_proj.": "attention.out.", "mlp.c_fc.": "mlp.up.",
    "mlp.c_proj.": "mlp.down."}
LLAMA_NAMES = {
    "model.": "", "embed_tokens.": "token_embedding.", "layers.": "blocks.",
    "input_layernorm.": "norm1.", "post_attention_layernorm.": "norm2.", "self_attn.": "attention.",
    "o_proj.": "out.", "_proj.": "."}


class Doubled:
    """PyTorch for Llama's code, which takes norms and angles in float32: float64 in its place."""
    float = float32 = torch.float64

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


def model_of(config: TransformerConfig) -> torch.nn.Module:
    """The library's model of a configuration, in float64."""
    if config.position == "learned":
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=config.vocab_size, n_positions=config.block_size, n_embd=config.n_embd,
            n_layer=config.n_layer, n_head=config.n_head, n_inner=config.n_inner,
            activation_function={"gelu": "gelu", "gelu_tanh": "gelu_new"}[config.activation],
            layer_norm_epsilon=config.norm_eps, tie_word_embeddings=config.tied)).double().eval()
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=config.vocab_size, max_position_embeddings=config.block_size,
        hidden_size=config.n_embd, num_hidden_layers=config.n_layer,
        num_attention_heads=config.n_head, num_key_value_heads=config.n_kv_head,
        intermediate_size=config.n_inner, rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rotary_base},
        attention_bias=bool(config.attention_bias), mlp_bias=bool(config.mlp_bias),
        tie_word_embeddings=config.tied)).double().eval()


def ours(theirs: dict[str, np.ndarray], config: TransformerConfig) -> dict[str, np.ndarray]:
    """Arrays by the library's parameters as minigrad names and lays them out."""
    names = GPT2_NAMES if config.position == "learned" else LLAMA_NAMES
    found = {}
    for name, a in theirs.items():
        if ".c_" in name:                   # of a Conv1D, whose weight is (inputs, outputs)
            a = a.T
        if ".q_proj." in name or ".k_proj." in name:
            a = adjacent(a, config.d_head)
        for part, known in names.items():
            name = name.replace(part, known)
        found[name] = a
    for name in [name for name in found if ".attention.q." in name]:
        parts = [found.pop(name.replace(".q.", f".{part}.")) for part in "qkv"]
        found[name.replace(".q.", ".qkv.")] = np.concatenate(parts)
    return found


def adjacent(rows: np.ndarray, D: int) -> np.ndarray:
    """The rows of heads of D channels, reordered from rotary pairs (i, i + D/2) to (2i, 2i + 1)."""
    halves = rows.reshape(-1, 2, D // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def one_pass(config: TransformerConfig, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Logits, loss and every gradient, of one random batch."""
    model = model_of(config)
    with torch.no_grad():
        for p in model.parameters():
            drawn = STD * rng.standard_normal(p.shape) + (p.numpy() if p.ndim == 1 else 0)
            p.copy_(torch.from_numpy(drawn.astype(np.float32)))
    ids, targets = rng.integers(config.vocab_size, size=(2, BATCH, TIME))
    logits = model(torch.from_numpy(ids)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1),
                                             torch.from_numpy(targets).flatten())
    loss.backward()
    parameters = dict(model.named_parameters())
    weights = ours({name: p.detach().numpy() for name, p in parameters.items()}, config)
    gradients = ours({name: p.grad.numpy() for name, p in parameters.items()}, config)
    return {"config": np.array(json.dumps(asdict(config))), "ids": ids, "targets": targets,
            "logits": logits.detach().numpy(), "loss": loss.detach().numpy(),
            **{f"weight/{name}": a.astype(np.float32) for name, a in weights.items()},
            **{f"gradient/{name}": a for name, a in gradients.items()}}


def main() -> None:
    torch.set_num_threads(1)        # one order of summation
    modeling_llama.torch = Doubled()
    rng = np.random.default_rng(0)
    arrays = {f"{name}/{part}": a for name, config in MODELS.items()
              for part, a in one_pass(config, rng).items()}
    path = pathlib.Path(__file__).with_name("families.npz")
    np.savez_compressed(path, transformers=np.array(transformers.__version__), **arrays)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
