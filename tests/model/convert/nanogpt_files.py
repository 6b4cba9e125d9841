"""Small checkpoints of nanoGPT, written by PyTorch, sound or with any change."""
import pickle
from itertools import chain

import numpy as np

from model import TransformerConfig
from model.convert import nanogpt
from model.convert.families import layout
from tests.kit import written

WTE, NORM, HEAD = "transformer.wte.weight", "transformer.ln_f.weight", "lm_head.weight"
ARGUMENTS = dict(n_layer=1, n_head=2, n_embd=4, block_size=5, bias=False, vocab_size=3, dropout=0.0)


def saved(path, arguments={}, names={}, keys={}, whole=None, shared=0, **built):
    """Write a checkpoint of one block, or as `built`, with a meta.pkl; `names` and `keys` replace
    tensors and entries, and `shared` numbers are those of all tensors."""
    import torch
    draw, numbers = np.random.default_rng(0), torch.zeros(shared)
    tensors = {}
    pieces = chain(*layout(TransformerConfig(**ARGUMENTS | built), nanogpt.FAMILY).values())
    for name, shape, *_ in pieces:
        new = torch.from_numpy(draw.standard_normal(shape, np.float32))
        tensors[name] = numbers[:new.numel()].reshape(shape) if shared else new
    tensors = {WTE: tensors[WTE], HEAD: tensors[WTE]} | tensors | names
    tensors = {name: new if tensor is True else tensor
               for name, tensor in tensors.items() if tensor is not None}
    content = {"model": tensors, "model_args": ARGUMENTS | built | arguments} | keys
    torch.save(content if whole is None else whole, path)
    written(path.parent / "meta.pkl", pickle.dumps({"itos": dict(enumerate("abc"))}))
    return path
