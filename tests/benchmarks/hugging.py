"""Llama on `transformers`, from the arrays of a checkpoint; it loads nothing of minigrad."""
import json

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.benchmarks.sizes import TEMPERATURE

NORMS = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"}
PROJECTIONS = {"self_attn.o_proj": "attention.out", "mlp.gate_proj": "mlp.gate",
               "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down"}


class Llama:
    """The model of a checkpoint.

    Raises
    ------
    ValueError : it has parts that are not Llama's.
    """

    def __init__(self, path: str) -> None:
        with np.load(path, allow_pickle=False) as file:
            config = json.loads(str(file["config"]))
            weights = {name.removeprefix("model/"): file[name] for name in file.files
                       if name.startswith("model/")}
        kind = [config.get(name) for name in ("position", "norm", "activation", "qk_norm")]
        if kind != ["rotary", "rms_gain", "swiglu", False] or config["ngrams"] > 1:
            raise ValueError("it is measured with the parts of Llama only")
        bias = config["bias"]
        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=config["vocab_size"], hidden_size=config["n_embd"],
            intermediate_size=config["n_inner"] or 4 * config["n_embd"],
            num_hidden_layers=config["n_layer"], num_attention_heads=config["n_head"],
            num_key_value_heads=config["n_kv_head"] or config["n_head"],
            max_position_embeddings=config["block_size"], rms_norm_eps=config["norm_eps"],
            rope_parameters={"rope_type": "default", "rope_theta": config["rotary_base"]},
            attention_bias=bias if config["attention_bias"] is None else config["attention_bias"],
            mlp_bias=bias if config["mlp_bias"] is None else config["mlp_bias"],
            tie_word_embeddings=config["tied"], bos_token_id=None, eos_token_id=None,
            pad_token_id=0)).eval()
        self.model.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(array))
                                    for name, array in theirs(config, weights).items()})

    def ready(self) -> None:
        """Answer that it is."""

    @torch.inference_mode()
    def logits(self, ids: np.ndarray) -> np.ndarray:
        """Of the next token, (B, T) -> (B, V)."""
        return self.model(torch.from_numpy(ids), logits_to_keep=1).logits[:, -1].numpy()

    @torch.inference_mode()
    def generate(self, ids: np.ndarray, count: int) -> None:
        """Draw so many tokens after ids (B, T), with its cache."""
        ids = torch.from_numpy(ids)
        self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                            min_new_tokens=count, do_sample=True, temperature=TEMPERATURE, top_k=0)


def theirs(config: dict, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights under the names, and in the layouts, of LlamaForCausalLM."""
    H, D = config["n_head"], config["n_embd"] // config["n_head"]
    G = config["n_kv_head"] or H
    found = {"model.embed_tokens.weight": weights["token_embedding.weight"],
             "model.norm.weight": weights["norm.weight"],
             "lm_head.weight": weights["token_embedding.weight" if config["tied"]
                                       else "lm_head.weight"]}
    for layer in range(config["n_layer"]):
        block, layer = f"blocks.{layer}.", f"model.layers.{layer}."
        for their, our in NORMS.items():
            found[f"{layer}{their}.weight"] = weights[f"{block}{our}.weight"]
        for kind in ("weight", "bias"):
            if f"{block}attention.qkv.{kind}" in weights:
                q, k, v = np.split(weights[f"{block}attention.qkv.{kind}"], [H * D, (H + G) * D])
                found |= {f"{layer}self_attn.q_proj.{kind}": by_halves(q, D),
                          f"{layer}self_attn.k_proj.{kind}": by_halves(k, D),
                          f"{layer}self_attn.v_proj.{kind}": v}
            for their, our in PROJECTIONS.items():
                if f"{block}{our}.{kind}" in weights:
                    found[f"{layer}{their}.{kind}"] = weights[f"{block}{our}.{kind}"]
    return found


def by_halves(rows: np.ndarray, D: int) -> np.ndarray:
    """Of each head, put the first channels of all pairs before the second ones."""
    return rows.reshape(-1, D // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
