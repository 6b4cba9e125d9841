"""A folder of Hugging Face on `transformers`; it loads nothing of minigrad."""
import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.benchmarks.sizes import TEMPERATURE


class Pretrained:
    """The model of a folder."""

    def __init__(self, path: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.model.generation_config.eos_token_id = None        # which would end a text early

    def ready(self) -> None:
        """Answer that it is."""

    @torch.inference_mode()
    def logits(self, ids: np.ndarray) -> np.ndarray:
        """Of the next token, (B, T) -> (B, V)."""
        return self.model(torch.from_numpy(ids), logits_to_keep=1).logits[:, -1].numpy()

    @torch.inference_mode()
    def generate(self, ids: np.ndarray, count: int) -> np.ndarray:
        """Draw so many tokens after ids (B, T), with its cache; return all, (B, T + count)."""
        ids = torch.from_numpy(ids)
        return self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=True,
            temperature=TEMPERATURE, top_k=0, pad_token_id=0).numpy()
