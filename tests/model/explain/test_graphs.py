"""The graphs to learn from: their numbers by hand, the block's by the model."""
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import minigrad as mg
from model import CharTokenizer, Transformer, TransformerConfig, save_checkpoint
from model.explain import __main__ as explain
from model.explain import graphs
from tests.kit import by_name

pytestmark = pytest.mark.late


@pytest.mark.parametrize("graph, expected", [
    (graphs.neuron, {"loss": (0.25, 1),
                     "error": (-0.5, -1),
                     "y": (0.5, -1),
                     "b": (1, -0.25),
                     "w": ([1, -1], [-0.5, -0.75])}),
    (graphs.two_words, {"weights": ([[1, 0], [1 / 4, 3 / 4]], None),
                        "mixed": ([[4], [7]], None),
                        "value": (None, [[1.25], [0.75]]),
                        "key": (None, [[-0.75], [0.75]]),
                        "query": (None, [[0], [0.75 * math.log(3)]])})])
def test_the_numbers_are_those_that_the_text_promises(graph, expected):
    p = by_name(graph())
    for name, (value, gradient) in expected.items():
        assert value is None or np.allclose(p[name].value, value, rtol=0, atol=1e-14), name
        assert gradient is None or np.allclose(p[name].gradient, gradient, rtol=0, atol=1e-14), name
    if graph is graphs.neuron:
        assert [float(part) for part in p["error"].parts] == [-0.5, -0.5]
        assert p["x"].gradient is None


@pytest.mark.parametrize("bias", [False, True])
def test_the_block_is_the_first_step_of_a_model_of_that_configuration(bias):
    config = TransformerConfig(11, block_size=8, n_layer=3, n_head=2, n_embd=12, dropout=0.1,
                               bias=bias)
    p = by_name(graphs.one_block(config))
    model = Transformer(TransformerConfig(11, 8, 1, 2, 12, 0.1, bias))
    ids, targets = p["ids"].value, p["targets"].value
    assert ids.shape == targets.shape == (graphs.BATCH, 8)
    assert np.array_equal(ids[:, 1:], targets[:, :-1])
    loss = mg.cross_entropy(model(ids), targets)
    loss.backward()
    assert p["loss"].value == loss.data
    for name, parameter in model.named_parameters():
        assert np.allclose(p[name].gradient, parameter.grad, rtol=1e-4, atol=1e-7), name
    assert len(p["token_embedding.weight"].parts) == 2


@pytest.mark.parametrize("of", graphs.GRAPHS)
def test_a_graph_is_printed_in_80_columns_or_drawn(of, tmp_path, capsys, monkeypatch):
    flags = ["--of", of, "--out_dir", str(tmp_path)]
    title = graphs.GRAPHS[of].__doc__.splitlines()[0]
    config = TransformerConfig(11, block_size=8, n_layer=3, n_head=2, n_embd=12)
    save_checkpoint(tmp_path / "ckpt.npz", Transformer(config), CharTokenizer("abcdefghijk"))
    explain.main(flags)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80 and "\nRules of the ops" in said
    assert said.startswith(f"{title}\n\n")
    drawn = tmp_path / "drawn.SVG"
    explain.main(["-o", str(drawn), *flags])
    assert capsys.readouterr().out == f"drawn in {drawn}; a browser shows it\n"
    assert ET.fromstring(drawn.read_text(encoding="utf-8"))[0].text == title
    # The block is that of the run's model, or of the default one.
    assert (of == "block") == ("float32[11, 12]" in drawn.read_text(encoding="utf-8"))
    explain.main(["-o", str(drawn), "--of", of, "--out_dir", "nowhere"])
    assert (of == "block") == ("float32[62, 128]" in drawn.read_text(encoding="utf-8"))
    monkeypatch.setattr(graphs.GRAPHS[of], "__doc__", None)     # as python -OO does
    capsys.readouterr()
    explain.main(flags)
    assert capsys.readouterr().out.startswith(f"{of}\n\n")
