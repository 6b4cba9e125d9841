"""Write transformer.npz: what PyTorch computes, for tests/test_reference.py to compare with.

    python -m tests.reference.make_reference            with '.[interop]'

The transformer is the benchmarks' twin on PyTorch.  It computes in float64, from inputs that are
exact in float32, so that one file serves both types.  In the file:

    pytorch                                     the version that computed it
    <model>/config                              JSON: the TransformerConfig
    <model>/{ids,targets,logits,loss}           one pass over one batch
    <model>/{weight,gradient}/<parameter>
    adamw/model                                 which of the models it starts from
    adamw/settings                              JSON: the optimiser's, and max_norm of the clipping
    adamw/{batches,losses,norms}                of each step; norms are those before clipping
    adamw/weight/<parameter>                    after the last step
    <op>/call                                   JSON: [name in minigrad, settings]
    <op>/{argument,gradient}/<place>
    <op>/{output,g}                             g is d(loss)/d(output)
"""
import json
import pathlib
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from model import Transformer, TransformerConfig
from tests.benchmarks.twin import Twin

SIZE = dict(vocab_size=11, block_size=10, n_layer=2, n_head=2, n_embd=8)
MODELS = {"with bias": TransformerConfig(**SIZE, bias=True),
          "without bias": TransformerConfig(**SIZE, bias=False)}
BATCH, TIME = 3, 9      # below block_size: the last position has gradient 0
WIDER = 25              # than initial weights, whose attention is too even to show a wrong scale
STEPS = 20
# With the usual eps Adam would magnify rounding errors: the true gradient of the keys' bias is 0.
OPTIMIZER = dict(lr=3e-3, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1)
MAX_NORM = 2.2          # some steps have more, some less


def twin_of(config, weights):
    """Return the twin in float64 with these weights."""
    twin = Twin(SimpleNamespace(**asdict(config))).double()
    twin.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    return twin


def wide_weights(config, rng):
    """Return weights of a Transformer that are wide enough for each of them to matter."""
    weights = Transformer(config).state_dict()
    for weight in weights.values():
        if weight.ndim == 2:
            weight *= WIDER
        else:                       # gains, which begin as 1, and shifts, which begin as 0
            weight += 0.3 * rng.standard_normal(weight.shape, weight.dtype)
    return weights


def one_pass(config, model, logits_of, batch, ours=dict):
    """Return logits, loss and every gradient of one batch, ids and targets (2, B, T).

    Parameters
    ----------
    ours : gives the arrays of a model as minigrad names and lays them out.
    """
    ids, targets = batch
    logits = logits_of(torch.from_numpy(ids))
    loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())
    loss.backward()
    parameters = dict(model.named_parameters())
    weights = ours({name: p.detach().numpy() for name, p in parameters.items()})
    gradients = ours({name: p.grad.numpy() for name, p in parameters.items()})
    return {"config": np.array(json.dumps(asdict(config))), "ids": ids, "targets": targets,
            "logits": logits.detach().numpy(), "loss": loss.detach().numpy(),
            **{f"weight/{name}": a.astype(np.float32) for name, a in weights.items()},
            **{f"gradient/{name}": a for name, a in gradients.items()}}


def training(config, weights, rng):
    """Return steps of clipping and AdamW, with weight decay for matrices only."""
    batches = rng.integers(config.vocab_size, size=(STEPS, 2, BATCH, config.block_size))
    twin = twin_of(config, weights)
    vectors = {"params": [p for p in twin.parameters() if p.ndim == 1], "weight_decay": 0.0}
    matrices = {"params": [p for p in twin.parameters() if p.ndim == 2]}
    optimizer = torch.optim.AdamW([matrices, vectors], **OPTIMIZER)
    losses, norms = [], []
    for ids, targets in torch.from_numpy(batches):
        loss = twin(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in twin.parameters()])
        nn.utils.clip_grads_with_norm_(     # which divides by the norm + 1e-6, minigrad by the norm
            twin.parameters(), MAX_NORM, norm - 1e-6)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return {"settings": np.array(json.dumps(OPTIMIZER | {"max_norm": MAX_NORM})),
            "batches": batches, "losses": np.array(losses), "norms": np.array(norms),
            **{f"weight/{name}": p.detach().numpy() for name, p in twin.named_parameters()}}


def op(name, learnt, given=(), f=None, **settings):
    """Return output and gradients of f(*learnt, *given), which PyTorch has for the op `name` with
    these settings: by default its function of that name."""
    arguments = [a.astype(np.float32) if a.dtype.kind == "f" else a for a in (*learnt, *given)]
    tensors = [torch.from_numpy(a) for a in arguments]
    tensors = [x.double() if x.is_floating_point() else x for x in tensors]
    leaves = [x.requires_grad_() for x in tensors[:len(learnt)]]
    f = f or partial(getattr(F, name), **settings)
    output = f(*tensors)
    g = np.asarray(np.random.default_rng(0).standard_normal(output.shape), np.float32)
    output.backward(torch.from_numpy(g).double())
    return {"call": np.array(json.dumps([name, settings])),
            "output": output.detach().numpy(), "g": g,
            **{f"argument/{i}": a for i, a in enumerate(arguments)},
            **{f"gradient/{i}": leaf.grad.numpy() for i, leaf in enumerate(leaves)}}


def ops(rng):
    """Return functions that libraries define differently, at inputs that show it."""
    r = rng.standard_normal
    line = np.linspace(-6, 6, 97)                               # 0 among them
    faint = r((4, 3, 6)) * np.array([1, 0.01, 0.003])[:, None]  # variances down to that of eps
    logits = 4 * r((2, 5, 7)) + np.array([0, 0, 900, -900, 0])[:, None]     # no exp holds these
    targets = rng.integers(7, size=(2, 5))
    targets[[0, 1, 1], [1, 3, 4]] = 3                           # ignored
    q, k, v = r((2, 2, 5, 4)), r((2, 2, 7, 4)), r((2, 2, 7, 3))
    look = rng.random((2, 1, 5, 7)) < 0.6
    look[0, 0, 2] = False                                       # this query may look nowhere
    added = np.where(rng.random((5, 7)) < 0.8, r((5, 7)), -np.inf)
    attention = "scaled_dot_product_attention"
    return {
        "gelu": op("gelu", [line]),
        "gelu by tanh": op("gelu", [line], approximate="tanh"),
        "silu": op("silu", [line]),
        "layer_norm": op("layer_norm", [faint + 0.5, r(6), r(6)], eps=1e-5,
                         f=lambda x, w, b: F.layer_norm(x, (6,), w, b, eps=1e-5)),
        "rms_norm": op("rms_norm", [faint, r(6)], eps=1e-5,
                       f=lambda x, w: F.rms_norm(x, (6,), w, eps=1e-5)),
        "log_softmax": op("log_softmax", [logits], f=lambda x: F.log_softmax(x, dim=-1)),
        "log_softmax over another axis": op("log_softmax", [r((2, 5, 3))], axis=1,
                                            f=lambda x: F.log_softmax(x, dim=1)),
        "cross_entropy": op("cross_entropy", [logits], (targets,), ignore_index=3,
                            f=lambda x, t: F.cross_entropy(x.mT, t, ignore_index=3)),
        "attention with a boolean mask": op(attention, [q, k, v], (look,)),
        "attention with a float mask": op(attention, [q, k, v], (added,)),
        "causal attention of fewer queries than keys": op(attention, [q, k, v], is_causal=True,
                                                          scale=0.7)}


def write(name, parts, **versions):
    """Write the arrays of some parts, and versions, to a file of this folder."""
    path = pathlib.Path(__file__).with_name(name)
    arrays = {f"{part}/{name}": a for part, group in parts.items() for name, a in group.items()}
    np.savez_compressed(path, **versions, **arrays)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main():
    torch.set_num_threads(1)        # one order of summation
    rng = np.random.default_rng(0)
    weights = {name: wide_weights(config, rng) for name, config in MODELS.items()}
    parts = {}
    for name, config in MODELS.items():
        twin = twin_of(config, weights[name])
        parts[name] = one_pass(config, twin, lambda ids: twin.logits(twin.hidden(ids)),
                               rng.integers(config.vocab_size, size=(2, BATCH, TIME)))
    start = "with bias"
    parts["adamw"] = {"model": np.array(start), **training(MODELS[start], weights[start], rng)}
    parts |= ops(rng)
    write("transformer.npz", parts, pytorch=torch.__version__)
    print(f"{(parts['adamw']['norms'] > MAX_NORM).sum()} of {STEPS} steps are clipped")


if __name__ == "__main__":
    main()
