"""What the judge says where no known mistake explains an answer, and to habits from PyTorch."""
import pytest

from tests.model.walk.conftest import EXERCISES, IMPORTS, solved

HEADS = """
def multi_head(x, w_qkv, w_out, heads):
    *lead, T, C = x.shape
    q, k, v = ((x @ w).reshape(*lead, T, heads, C // heads).swapaxes(-2, -3)
               for w in mg.split(w_qkv, 3, axis=1))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(C // heads)
    weights = {}
    return (weights @ v).swapaxes(-2, -3).reshape(*lead, T, C) @ w_out
"""
SAFE = "mg.softmax(mg.where(np.tri(T, dtype=bool), scores, -math.inf))"
MASKS = ["mg.softmax(mg.where(np.tri(T, dtype=bool), scores, {}.0))",
         "mg.softmax(scores + (1 - np.tri(T)) * {})"]
UNSAFE = [mask.format(number) for mask in MASKS for number in (-30, -50, -100, -1000)]
UNSAFE += ["mg.exp(scores) * np.tri(T) / (mg.exp(scores) * np.tri(T)).sum(axis=-1, keepdims=True)"]


def with_heads(function, weights):
    """A file whose answer has attention written in it."""
    parts = {"multi_head": [], "block": ["block"], "model": ["block", "model"]}[function]
    return "\n\n".join([IMPORTS + "from e5_layer_norm import layer_norm", HEADS.format(weights),
                        *(EXERCISES[part].code() for part in parts)])


@pytest.mark.parametrize("function", ["multi_head", "block", "model"])
def test_a_mask_by_a_number_and_exp_of_large_scores_are_wrong_wherever_attention_is(function, said):
    right = ("Right.", "It is trained.")
    assert said(function, with_heads(function, SAFE))[0].startswith(right)
    for weights in UNSAFE:
        assert not said(function, with_heads(function, weights))[0].startswith(right), weights


# A change of our answer, and the advice that it gets.
HABITS = [
    ("causal_head", "scores))", "scores), dim=-1)", "PyTorch's dim is axis here, as in axis=-1"),
    ("softmax", "e.sum(axis=-1, keepdims=True)", "e.sum(-1, keepdim=True)",
     "PyTorch's keepdim is keepdims here"),
    ("causal_head", "query.shape[-2:]", "x.size(-2), query.size(-1)",
     "PyTorch's x.size(-1) is x.shape[-1] here"),
    ("causal_head", "weights @ value", "(weights @ value).view(T, D)",
     "PyTorch's view is reshape here"),
    ("layer_norm", "return g.sum(axis=rows)", "return g.view(-1, 4).sum(axis=0)",
     "PyTorch's view is reshape here"),
    ("causal_head", "mg.where(future, -math.inf, scores)", "scores.masked_fill(future, -math.inf)",
     "PyTorch's masked_fill is mg.where(condition, -math.inf, x) here"),
    ("causal_head", "return", "scores.masked_fill_(future, 0)\n    return",
     "PyTorch's masked_fill is mg.where(condition, -math.inf, x) here"),
    ("causal_head", "key.swapaxes(-1, -2)", "key.transpose(-1, -2)", "swapaxes"),
    ("multi_head", "@ w_out", "@ w_out.transpose(1, 2)", "swapaxes"),
    ("softmax", "return y,", "y.transpose(1, 2)\n    return y,", "x.swapaxes(1, 2) here"),
    ("causal_head", "key.swapaxes(-1, -2)", "key.permute(1, 0)", "its permute is transpose"),
    ("layer_norm", "return z", "x.unsqueeze(-1)\n    return z", "is x[..., None] here"),
    ("multi_head", "mg.concatenate", "mg.cat", "PyTorch's cat is mg.concatenate here"),
    ("causal_head", "mg.softmax(", "torch.softmax(", "PyTorch is not used here"),
    ("causal_head", "mg.softmax(", "F.softmax(", "PyTorch is not used here"),
    ("softmax", "import numpy as np", "import numpy as np\nraise ModuleNotFoundError(\"No module "
     "named 'torch'\")", "PyTorch is not used here")]


@pytest.mark.parametrize("function, right, wrong, advice", HABITS)
def test_a_habit_from_pytorch_is_answered_with_the_spelling_here(function, right, wrong, advice,
                                                                 changed):
    (answer,) = changed(function, right, wrong)
    assert advice in " ".join(answer.split())


def test_two_numbers_are_printed_with_digits_until_they_differ(changed):
    (answer,) = changed("softmax", "return y,", "return y + 4e-8,")
    assert "it is 0.25000234, and should be 0.2500023." in " ".join(answer.split())


def test_a_factor_that_all_numbers_have_is_named(changed):
    (answer,) = changed("causal_head", "@ value", "@ value * 0.9")
    assert "All of its numbers are 0.9 times what they should be." in " ".join(answer.split())
    (answer,) = changed("causal_head", "@ value", "@ value + 0.9")
    assert "times" not in answer


@pytest.mark.parametrize("function", ["multi_head", "block"])
def test_the_first_case_is_shown_also_where_it_has_a_number_of_heads(function, said):
    source = solved(function).replace("    return ", "    return 1.5 + ")
    (answer,) = said(function, source)
    assert "\n    x = [[" in answer and "\n    heads = " in answer and "\n    right = " in answer


def test_a_gradient_of_the_wrong_shape_is_blamed_alone(changed):
    (answer,) = changed("layer_norm", "g.sum(axis=rows)", "g[..., :1]")
    assert answer.startswith("The gradient by bias has shape [2, 1] for ")
    (answer,) = changed("layer_norm", "g.sum(axis=rows)", "g.sum()")
    assert answer.startswith("The gradient of the bias is one number")


def test_errors_in_most_cases_are_no_reason_to_name_a_mistake(changed):
    (answer,) = changed("multi_head", "mg.concatenate(mixed, axis=-1)", "sum(mixed) / heads")
    assert answer.startswith("The value cannot be made for ")
