"""The optimisers of a run, and which parameters each of them gets."""
import minigrad as mg
from model.processes import Ranks
from model.training.settings import Settings
from model.transformer import Transformer


def optimizer_of(model: Transformer, s: Settings, ranks: Ranks = Ranks()
                 ) -> mg.Optimizers | mg.AdamW:
    """Return the optimiser of a model's parameters that the settings ask for.  Several ranks share
    out Muon's matrices."""
    matrices = packed_and_other_matrices(model) if s.optimizer == "muon" else []
    adamw = mg.AdamW(decayed_and_other(model, matrices), s.learning_rate, (s.beta1, s.beta2),
                     weight_decay=s.weight_decay)
    if not matrices:
        return adamw
    # Three Newton-Schulz steps train as well as the published five, and take less time.
    return mg.Optimizers([adamw, ranks.muon(matrices, s.muon_lr, weight_decay=s.weight_decay,
                                            ns_steps=3)])


def decayed_and_other(model: Transformer, without: list[dict] = ()) -> list[dict]:
    """Return AdamW's parameters, without those of another optimiser, in two groups: matrices, which
    get weight decay, and norms and biases, which do not."""
    elsewhere = {id(p) for group in without for p in group["params"]}
    parameters = [p for p in model.parameters() if id(p) not in elsewhere]
    return [{"params": [p for p in parameters if p.ndim >= 2]},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]


def packed_and_other_matrices(model: Transformer) -> list[dict]:
    """Return Muon's parameters, the matrices of the blocks: those that pack queries, keys and
    values, which Muon takes one by one, and the others."""
    one = model.blocks[0].attention
    n_q, n_k = one.heads * one.d_key, one.kv_heads * one.d_key
    packed = [block.attention.qkv.weight for block in model.blocks]
    other = [p for block in model.blocks for p in block.parameters()
             if p.ndim == 2 and p is not block.attention.qkv.weight]
    return [{"params": packed, "sections": (n_q, n_k, len(packed[0].data) - n_q - n_k)},
            {"params": other}]
