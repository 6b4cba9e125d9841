"""The model, its training and single ops against PyTorch's results in reference/transformer.npz,
and models of other makers against those of the library transformers in reference/families.npz."""
import json

import numpy as np
import pytest

import minigrad as mg
from model import TransformerConfig
from tests.kit import ROOT, arrays, leaf, model_of

pytestmark = pytest.mark.late
FOLDER = ROOT / "tests" / "reference"
REFERENCE = arrays(FOLDER / "transformer.npz") | arrays(FOLDER / "families.npz")
MODELS = [name.removesuffix("/config") for name in REFERENCE if name.endswith("/config")]
OPS = [name.removesuffix("/call") for name in REFERENCE if name.endswith("/call")]

in_both_types = pytest.mark.parametrize("dtype, tolerance",
                                        [(np.float64, 1e-10), (np.float32, 1e-5)])


def group(prefix):
    """The arrays below a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): a for name, a in REFERENCE.items()
            if name.startswith(prefix)}


def errors(ours, theirs, dtype):
    """The norm of the difference over the norm, for arrays with the same names and shapes."""
    assert {name: (a.shape, a.dtype) for name, a in ours.items()} == {
        name: (a.shape, dtype) for name, a in theirs.items()}
    return {name: np.linalg.norm(ours[name] - a) / np.linalg.norm(a) for name, a in theirs.items()}


def reference_model(name, dtype):
    config = TransformerConfig(**json.loads(str(REFERENCE[f"{name}/config"])))
    return model_of(config, group(f"{name}/weight/"), dtype)


@in_both_types
@pytest.mark.parametrize("name", MODELS)
def test_the_transformer_has_the_references_logits_loss_and_gradients(name, dtype, tolerance):
    model = reference_model(name, dtype)
    logits = model(REFERENCE[f"{name}/ids"])
    loss = mg.cross_entropy(logits, REFERENCE[f"{name}/targets"])
    loss.backward()
    values = errors({"logits": logits.data, "loss": loss.data},
                    {value: REFERENCE[f"{name}/{value}"] for value in ("logits", "loss")}, dtype)
    assert all(error < tolerance for error in values.values()), values
    gradients = errors({path: p.grad for path, p in model.named_parameters()},
                       group(f"{name}/gradient/"), dtype)
    assert all(error < tolerance for error in gradients.values()), gradients


def test_steps_of_clipping_and_adamw_end_where_pytorch_ends():
    adamw = group("adamw/")
    settings = json.loads(str(adamw["settings"]))
    max_norm = settings.pop("max_norm")
    model = reference_model(str(adamw["model"]), np.float64)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = mg.AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
                         **settings)
    losses, norms = [], []
    for ids, targets in adamw["batches"]:
        loss = mg.cross_entropy(model(ids), targets)
        optimizer.zero_grad()
        loss.backward()
        norms.append(mg.clip_grad_norm_(model.parameters(), max_norm))
        optimizer.step()
        losses.append(loss.item())
    assert min(norms) < max_norm < max(norms)
    assert np.allclose(norms, adamw["norms"], rtol=1e-10, atol=0)
    assert np.allclose(losses, adamw["losses"], rtol=1e-10, atol=0)
    weights = errors(model.state_dict(), group("adamw/weight/"), np.float64)
    assert all(error < 1e-10 for error in weights.values()), weights


@in_both_types
@pytest.mark.parametrize("case", OPS)
def test_an_op_has_pytorchs_value_and_gradients(case, dtype, tolerance):
    name, settings = json.loads(str(REFERENCE[f"{case}/call"]))
    gradients = group(f"{case}/gradient/")
    arguments = [a.astype(dtype) if a.dtype.kind == "f" else a
                 for a in group(f"{case}/argument/").values()]
    for place in map(int, gradients):
        arguments[place] = leaf(arguments[place])
    output = mg.OPS[name](*arguments, **settings)
    output.backward(REFERENCE[f"{case}/g"].astype(dtype))
    found = errors({"output": output.data, **{i: arguments[int(i)].grad for i in gradients}},
                   {"output": REFERENCE[f"{case}/output"], **gradients}, dtype)
    assert all(error < tolerance for error in found.values()), found
