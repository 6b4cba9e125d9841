"""The tour of a step: numbers of the step itself, lines of the source, and nothing saved."""
import math
import pathlib
import re

import numpy as np
import pytest

import data
import minigrad as mg
import train
from tests.kit import TINY
from minigrad.optim import Optimizer, warmup_cosine
from model import CharTokenizer, Transformer, load_checkpoint
from model.command import Parser
from model.look.explain import WIDTH, grouped, norm
from model.run import State, decayed_and_other
from model.settings import Settings

ROOT = pathlib.Path(__file__).parents[3]
SETTINGS = {
    "plain": ["--n_layer", "2"],
    "one layer": ["--n_layer", "1", "--grad_clip", "0"],
    "all": ["--n_layer", "3", "--dropout", "0.2", "--bias", "--weight_decay", "0.5",
            "--gradient_accumulation_steps", "3", "--grad_clip", "0.01", "--warmup_iters", "0"]}


def told(capsys, *flags):
    train.main([*flags, "--explain"])
    return capsys.readouterr().out


def stages(text):
    """The stages of the tour by their titles."""
    parts = re.split(r"\n\n(.+)\n-+\n", text)
    return dict(zip(parts[1::2], parts[2::2]))


def the_step(small_text, flags):
    """What the tour is about, computed directly: settings, model before and after, loss, gradients,
    the state after."""
    s = Settings(**Parser("train.py", "", Settings).given(
        ["--data", str(small_text), *TINY, *flags]))
    text = data.read_texts(s.data).characters
    tokenizer = CharTokenizer(text)
    ids, _ = data.split(tokenizer.encode(text))
    model = Transformer(s.model_config(tokenizer.vocab_size), s.seed)
    state, loss = State(s.seed), 0.0
    for _ in range(s.gradient_accumulation_steps):
        x, y = data.random_batch(ids, s.batch_size, s.block_size, state.batches)
        part = mg.cross_entropy(model(x, rng=state.dropout), y) / s.gradient_accumulation_steps
        part.backward()
        loss += part.item()
    gradients = {name: p.grad.copy() for name, p in model.named_parameters()}
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    mg.clip_grad_norm_(model.parameters(), s.grad_clip or math.inf)
    lr = warmup_cosine(0, s.learning_rate, s.learning_rate / 10, s.warmup_iters, s.steps)
    optimizer = mg.AdamW(decayed_and_other(model), lr, (s.beta1, s.beta2),
                         weight_decay=s.weight_decay)
    optimizer.step()
    return s, tokenizer, ids, model, before, loss, gradients, lr


@pytest.mark.parametrize("name", SETTINGS)
def test_loss_gradients_clipping_and_update_are_those_of_the_step(small_text, tmp_path, capsys,
                                                                  name):
    flags = SETTINGS[name]
    s, tokenizer, _, model, before, loss, gradients, lr = the_step(small_text, flags)
    said = stages(told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY,
                       *flags))

    assert f"   {loss:.4f} nats a character" in said["The loss"]
    assert f"{math.log(tokenizer.vocab_size):8.3f}  a guess" in said["The loss"]
    assert f"{math.exp(-loss):.2%}" in said["The loss"]

    shown = rows(said["Backward, the youngest op first"])
    for group, parameters in grouped(model):
        assert shown[group][0] == f"{sum(p.size for _, p in parameters):,}"
        assert close(shown[group][1], norm([gradients[path] for path, _ in parameters]))
    assert shown.keys() >= {"token_embedding.weight", "blocks.0.attention.qkv.weight"}
    assert sum(g.startswith("blocks.0.") for g in shown) == sum(
        name.startswith("blocks.0.") for name in gradients)
    assert [g for g in shown if re.fullmatch(r"blocks\.\d", g)] == [
        f"blocks.{i}" for i in range(1, s.n_layer)]

    total = norm(gradients.values())
    clipping = " ".join(said["Clipping"].split())
    assert f"have the norm {total:.4g}, and --grad_clip is {s.grad_clip:g}" in clipping
    if not s.grad_clip:
        assert clipping.endswith("which clips nothing.")
    elif total > s.grad_clip:
        assert f"each is multiplied by {s.grad_clip / total:.4g}" in clipping
    else:
        assert clipping.endswith("they stay as they are.")

    step = said["The step of AdamW"]
    assert f"learning rate is {lr:.4g}, {lr / s.learning_rate:.1%} of the highest" in words(step)
    assert f"weight decay is {s.weight_decay:g} on" in words(step)
    shown = rows(step)
    for group, parameters in grouped(model):
        size = math.sqrt(np.mean(np.concatenate([before[n].ravel() for n, _ in parameters]) ** 2))
        moved = math.sqrt(np.mean(np.concatenate([(p.data - before[n]).ravel()
                                                  for n, p in parameters]) ** 2))
        assert close(shown[group][0], size) and close(shown[group][1], moved)
        if size:
            assert close(shown[group][2].rstrip("%"), 100 * moved / size, 6e-3)
        assert close(shown[group][-1], moved / lr, 2e-3)


def words(text):
    return " ".join(text.split())


def rows(text):
    """The rows of a table by their first word."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}


def close(shown, number, rtol=1e-3):
    return math.isclose(float(shown.replace(",", "")), number, rel_tol=rtol, abs_tol=1e-3 * rtol)


@pytest.mark.parametrize("name", ["plain", "all"])
def test_the_loss_after_the_step_is_that_of_the_changed_weights_and_the_same_dropout(
        small_text, tmp_path, capsys, name):
    s, tokenizer, ids, model, _, loss, _, _ = the_step(small_text, SETTINGS[name])
    state = State(s.seed)
    again = np.mean([mg.cross_entropy(model(x, rng=state.dropout), y).item() for x, y in
                     [data.random_batch(ids, s.batch_size, s.block_size, state.batches)
                      for _ in range(s.gradient_accumulation_steps)]])
    said = stages(told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY,
                       *SETTINGS[name]))["The same characters again"]
    assert f"The loss was {loss:.4f}; with the changed weights it is {again:.4f}," in words(said)
    assert words(said).endswith("lower." if again < loss else "higher.")


def test_a_step_that_changes_nothing_leaves_the_loss_the_same(small_text, tmp_path, capsys):
    said = stages(told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY,
                       "--learning_rate", "0", "--min_lr", "0"))["The same characters again"]
    assert words(said).endswith("with the changed weights it is the same.")


def test_the_batch_is_the_runs_first_and_its_targets_follow(small_text, tmp_path, capsys):
    said = stages(told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY))
    s, tokenizer, ids, *_ = the_step(small_text, [])
    x, y = data.random_batch(ids, s.batch_size, s.block_size, State(s.seed).batches)
    batch = said["From the text to a batch"]
    assert "4 sequences of 16 characters" in batch and "from 0 to 27" in words(batch)
    assert f"The first sequence: {tokenizer.decode(x[0])!r}" in batch
    shown = [re.split(r"  +", line.strip()) for line in batch.splitlines()[-5:]]
    assert [row[0] for row in shown] == ["position", "character", "its id", "the target's",
                                         "target"]
    assert shown[2][1:-1] == [str(i) for i in x[0][:12]]
    assert shown[3][1:-1] == [str(i) for i in y[0][:12]]
    assert shown[1][1:-1] == [repr(c) for c in tokenizer.decode(x[0][:12])]
    assert shown[4][1:-1] == [repr(c) for c in tokenizer.decode(y[0][:12])]
    assert shown[3][1:-2] == shown[2][2:-1] and shown[0][-1] == "..."


@pytest.mark.parametrize("name", SETTINGS)
def test_every_line_of_source_stands_where_it_is_said_to(small_text, tmp_path, capsys, name):
    text = told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY,
                *SETTINGS[name])
    text = text[text.index("Step 1"):]
    assert max(map(len, text.splitlines())) <= WIDTH <= 100
    assert not re.search(r"\([\d, ]+$", text, flags=re.M)        # no shape over two lines
    found = re.findall(r"^ +(.+?) +(\S+\.py):(\d+)$", text, flags=re.M)
    assert len(found) > 15 and {file for _, file, _ in found} >= {
        "train.py", "model/transformer.py", "model/layers.py", "model/attention.py",
        "minigrad/optim.py", "data/batches.py"}
    for shown, file, number in found:
        source = (ROOT / file).read_text(encoding="utf-8").splitlines()[int(number) - 1:]
        assert words(" ".join(source[:4])).startswith(shown.removesuffix(" ...")), shown


def ran(n_layer):
    """The ops of a step of the tests' model, in the order of backward; but dropout, which without
    a share to drop does nothing and is not told."""
    with mg.Recorder() as r:
        model = Transformer(Settings(n_layer=n_layer, n_head=2, n_embd=16, block_size=16)
                            .model_config(28))
        ids = np.zeros((4, 16), int)
        (mg.cross_entropy(model(ids), ids) / 1).backward()
    return [place.op for place in r.places() if place.kind == "op" and place.op != "dropout"]


def test_each_op_stands_below_the_line_that_calls_it_with_its_shapes(small_text, tmp_path, capsys):
    said = stages(told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY,
                       "--n_layer", "3", "--gradient_accumulation_steps", "2"))
    said = said["Forward, op by op"]
    lines, ops = {}, []                     # the last line of source, by how far it is indented
    for shown in said.splitlines():
        indent = len(shown) - len(shown.lstrip())
        if re.search(r"\.py:\d+$", shown):
            lines[indent] = shown
        elif match := re.match(r" +\| (\w+)  \(", shown):
            ops.append(match[1])
            sign = {"add": " + ", "divide": " / "}.get(match[1], f"mg.{match[1]}(")
            assert sign in lines[indent - 2], shown
    assert ops == ran(1)[::-1]
    assert "| embedding  (4, 16), token_embedding.weight (28, 16) -> (4, 16, 16)" in said
    assert "| linear  (4, 16, 16), attention.qkv.weight (48, 16) -> (4, 16, 48)" in said
    assert "| cross_entropy  (4, 16, 28), (4, 16) -> ()" in said
    assert "mlp.down.weight (16, 64)," in said
    of_a_block = (len(ran(3)) - len(ran(1))) // 2
    assert re.findall(r"block (\d): the same (\d+) ops -> (.*)", said) == [
        (str(i), str(of_a_block), "(4, 16, 16)") for i in (1, 2)]


def test_the_numbers_of_an_op_are_those_of_what_it_made(small_text, tmp_path, capsys):
    s, tokenizer, ids, *_ = the_step(small_text, [])
    said = words(told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY))
    model = Transformer(s.model_config(tokenizer.vocab_size), s.seed)
    x, _ = data.random_batch(ids, s.batch_size, s.block_size, State(s.seed).batches)
    a = model(x).data
    assert (f"-> (4, 16, 28) | mean {a.mean():.3g}, std {a.std():.3g}, from {a.min():.3g} to "
            f"{a.max():.3g}") in said


def test_backward_goes_through_the_blocks_from_the_last_to_the_first(small_text, tmp_path, capsys):
    said = stages(told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY,
                       "--n_layer", "3", "--gradient_accumulation_steps", "2"))
    said = said["Backward, the youngest op first"]
    assert said.lstrip().startswith("loss.backward()")
    order = re.findall(r"^   (outside blocks|block \d) +(\S+) +(\w+(?:, \w+)*)$", said, flags=re.M)
    assert [where for where, *_ in order] == ["outside blocks", "block 2", "block 1", "block 0",
                                              "outside blocks"]
    assert order[0][1] == "1" and [op for *_, ops in order for op in ops.split(", ")] == ran(3)
    assert order[1][2] == order[2][2] == order[3][2]


def test_nothing_is_written_and_an_earlier_run_stays_where_it_is(small_text, tmp_path, capsys,
                                                                 monkeypatch):
    monkeypatch.chdir(tmp_path)
    told(capsys, "--data", str(small_text), "--out_dir", "new", *TINY)
    assert list(tmp_path.iterdir()) == []
    train.main(["--data", str(small_text), "--out_dir", "old", *TINY, "--max_iters", "0"])
    kept = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    told(capsys, "--data", str(small_text), "--out_dir", "old", *TINY)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == kept
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_resumed_it_explains_the_next_step_of_that_run(small_text, tmp_path, capsys):
    out_dir = tmp_path / "out"
    run = ["--data", str(small_text), "--out_dir", str(out_dir), *TINY, "--dropout", "0.1"]
    train.main([*run, "--max_iters", "10"])
    kept = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    resume = ["--init_from", "resume", "--out_dir", str(out_dir)]
    beyond = told(capsys, *resume)
    assert "Step 11, after the end of a run of 10, from the text" in beyond
    text = told(capsys, *resume, "--max_iters", "11")
    assert "Step 11 of 11, from the text" in text and "At the first step" not in text
    assert {path.name: path.read_bytes() for path in out_dir.iterdir()} == kept

    train.main([*resume, "--max_iters", "11"])
    loss = load_checkpoint(out_dir / "last.npz")
    log = (out_dir / "log.csv").read_text().splitlines()[-1].split(",")
    assert log[0] == "11" and f"   {float(log[1]):.4f} nats a character" in text
    assert loss.training["settings"]["explain"] is False


@pytest.mark.parametrize("channels", ["16", "1"])
def test_a_tiny_text_and_a_tiny_model_are_explained_too(tmp_path, capsys, channels):
    text = tmp_path / "tiny.txt"
    text.write_text("ab" * 12, encoding="utf-8")
    said = stages(told(capsys, "--data", str(text), "--out_dir", str(tmp_path / "out"), *TINY,
                       "--block_size", "1", "--batch_size", "1", "--n_head", "1",
                       "--n_embd", channels))
    assert "1 sequences of 1 characters" in said["From the text to a batch"]
    assert "..." not in said["From the text to a batch"].splitlines()[-1]
    assert "V = 2 characters" in said["Forward, op by op"]


def test_without_docstrings_which_python_oo_leaves_out_an_optimiser_has_its_name(
        small_text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mg.AdamW, "__doc__", None)
    monkeypatch.setattr(Optimizer, "__doc__", None)
    out = told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY)
    assert "AdamW.  The learning rate is" in out


def test_each_optimiser_of_a_step_is_told_with_its_rate(small_text, tmp_path, capsys):
    text = told(capsys, "--data", str(small_text), "--out_dir", str(tmp_path), *TINY,
                "--optimizer", "muon", "--muon_lr", "0.06")
    adamw, muon = text.split("The step of AdamW")[1].split("The step of Muon")
    assert "The learning rate is 0.001667, 16.7% of the highest" in " ".join(adamw.split())
    assert "The learning rate is 0.01, 16.7% of the highest" in " ".join(muon.split())
    assert "minigrad/optim.py" in muon and "its sign remains" not in muon
