"""Which parameters each optimiser of a run gets."""
import pytest

from model import Transformer, TransformerConfig
from model.run import decayed_and_other, packed_and_other_matrices


def test_weight_decay_falls_on_matrices_only():
    model = Transformer(TransformerConfig(9, 8, 1, 1, 8, bias=True))
    decayed, other = decayed_and_other(model)
    assert all(p.ndim == 2 for p in decayed["params"]) and "weight_decay" not in decayed
    assert all(p.ndim == 1 for p in other["params"]) and other["weight_decay"] == 0
    assert len(decayed["params"]) + len(other["params"]) == len(model.parameters())


@pytest.mark.parametrize("groups", [None, 1])
def test_muon_gets_the_matrices_of_the_blocks_and_adamw_the_rest(groups):
    model = Transformer(TransformerConfig(9, 8, 2, 2, 8, bias=True, n_kv_head=groups))
    packed, other = matrices = packed_and_other_matrices(model)
    names = {id(p): name for name, p in model.named_parameters()}
    stepped = [names[id(p)] for group in matrices for p in group["params"]]
    assert sorted(stepped) == sorted(
        f"blocks.{i}.{name}.weight" for i in (0, 1)
        for name in ("attention.qkv", "attention.out", "mlp.up", "mlp.down"))
    assert packed["params"] == [block.attention.qkv.weight for block in model.blocks]
    assert packed["sections"] == ((8, 8, 8) if groups is None else (8, 4, 4))
    assert "sections" not in other
    rest = [names[id(p)] for group in decayed_and_other(model, matrices) for p in group["params"]]
    assert sorted(rest + stepped) == sorted(names.values())


def test_a_gate_is_a_matrix_of_a_block_and_an_untied_output_none():
    model = Transformer(TransformerConfig(9, 8, 2, 2, 8, norm="rms_gain", activation="swiglu",
                                          n_inner=5, tied=False))
    matrices = packed_and_other_matrices(model)
    stepped = {id(p) for group in matrices for p in group["params"]}
    assert stepped == {id(p) for block in model.blocks for p in block.parameters() if p.ndim == 2}
    assert all(id(block.mlp.gate.weight) in stepped for block in model.blocks)
    decayed, other = decayed_and_other(model, matrices)
    assert [*map(id, decayed["params"])] == [*map(id, (
        model.token_embedding.weight, model.position_embedding.weight, model.lm_head.weight))]
    assert len(other["params"]) == 5 and other["weight_decay"] == 0     # the gains
