"""The explained step: numbers of the step itself, lines of the source, and nothing saved."""
import contextlib
import io
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

import data
import minigrad as mg
import train
from minigrad.optim import Optimizer
from minigrad.watch.text import norm, rms
from model import CharTokenizer, Transformer
from model.command import Parser
from model.explain.step import WIDTH, grouped
from model.run import State, adamw_groups
from model.settings import Settings
from tests.kit import ROOT, TINY, losses, run, written

SETTINGS = {
    "plain": ["--n_layer", "2"],
    "one layer": "--n_layer 1 --grad_clip 0 --zero_init --weight_decay 0".split(),
    "all": ("--n_layer 3 --dropout 0.2 --bias --weight_decay 0.5 --gradient_accumulation_steps 3 "
            "--grad_clip 0.01 --warmup_iters 0").split()}


def printed(f, *args):
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        f(*args)
    out.seek(0)
    return out.read()


def explained(text, out_dir, *flags):
    return printed(run, text, out_dir, *flags, "--explain")


def stages(text):
    """The stages by their titles; each in lines, and as words."""
    parts = re.split(r"\n\n(.+)\n-+\n", text)
    return {title: SimpleNamespace(lines=said.splitlines(), words=" ".join(said.split()))
            for title, said in zip(parts[1::2], parts[2::2])}


def rows(stage):
    """The rows of a stage's table by their first word."""
    return {line.split()[0]: line.split()[1:] for line in stage.lines if line.strip()}


@pytest.fixture(scope="module", params=SETTINGS)
def step(request, small_text, tmp_path_factory):
    """A step as it is explained, and the same step computed directly."""
    flags = SETTINGS[request.param]
    said = explained(small_text, tmp_path_factory.mktemp("out"), *flags)
    s = Settings(**Parser("train.py", "", Settings).parse(
        ["--data", str(small_text), *TINY, *flags]))
    text = data.read_texts(s.data).characters
    tokenizer = CharTokenizer(text)
    ids, _ = data.split(tokenizer.encode(text))
    model, state = Transformer(s.model_config(tokenizer.vocab_size), s.seed), State(s.seed)
    batches = [data.random_batch(ids, s.batch_size, s.block_size, state.batches)
               for _ in range(s.gradient_accumulation_steps)]
    before = {name: p.data.copy() for name, p in model.named_parameters()}

    def losses(rng):
        return [mg.cross_entropy(model(x, rng=rng), y) for x, y in batches]
    logits, parts = model(batches[0][0]).data, losses(State(s.seed).dropout)
    for part in parts:
        (part / len(parts)).backward()
    gradients = {name: p.grad.copy() for name, p in model.named_parameters()}
    mg.clip_grad_norm_(model.parameters(), s.grad_clip or math.inf)
    lr = s.learning_rate / (s.warmup_iters + 1)
    mg.AdamW(adamw_groups(model), lr, (s.beta1, s.beta2),
             weight_decay=s.weight_decay).step()
    return SimpleNamespace(
        s=s, tokenizer=tokenizer, model=model, before=before, gradients=gradients, lr=lr,
        logits=logits, loss=np.mean([part.item() for part in parts]), batch=batches[0],
        again=np.mean([part.item() for part in losses(State(s.seed).dropout)]),
        text=said[said.index("Step 1"):], said=stages(said))


def close(shown, number, rtol=1e-3):
    return math.isclose(float(shown.replace(",", "")), number, rel_tol=rtol, abs_tol=1e-3 * rtol)


def test_the_loss_is_that_of_the_step_and_is_compared_with_a_blind_guess(step):
    said = step.said["The loss"].words
    assert said.startswith(f"{step.loss:.4f} nats a character")
    assert f"{math.exp(-step.loss):.2%}" in said and f"ln 28 = {math.log(28):.3f}" in said
    again = step.said["The same characters again"].words
    assert f"was {step.loss:.4f}; with the changed weights it is {step.again:.4f}," in again
    assert ("(--zero_init)" in step.text) == step.s.zero_init
    assert again.endswith("lower." if step.again < step.loss else "higher.")


def test_every_parameters_gradient_is_that_of_all_batches_before_clipping(step):
    shown = rows(step.said["Backward, the youngest op first"])
    for group, parameters in grouped(step.model):
        n = sum(p.size for _, p in parameters)
        numbers, gradient = shown[group]
        assert numbers == f"{n:,}"
        assert close(gradient, norm(step.gradients[path] for path, _ in parameters))
    assert {name for name in step.gradients if not re.match(r"blocks\.[1-9]", name)} <= shown.keys()
    assert [g for g in shown if re.fullmatch(r"blocks\.\d", g)] == [
        f"blocks.{i}" for i in range(1, step.s.n_layer)]
    total = math.hypot(*map(np.linalg.norm, step.gradients.values()))
    clip, clipping = step.s.grad_clip, step.said["Clipping"].words
    assert f"have the norm {total:.4g}, and --grad_clip is {clip:g}" in clipping
    assert clipping.endswith("which clips nothing." if not clip else
                             f"each is multiplied by {clip / total:.4g}." if total > clip else
                             "they stay as they are.")


def test_every_parameters_step_is_that_of_the_optimiser(step):
    said, lr = step.said["The step of AdamW"], step.lr
    highest = f"{lr / step.s.learning_rate:.1%} of the highest"
    assert f"learning rate is {lr:.4g}, {highest}" in said.words
    assert f"weight decay is {step.s.weight_decay:g} on" in said.words
    shown = rows(said)
    for group, parameters in grouped(step.model):
        weights = rms([step.before[name] for name, _ in parameters])
        moved = rms([p.data - step.before[name] for name, p in parameters])
        row = shown[group]
        assert close(row[0], weights) and close(row[1], moved)
        if weights:
            assert close(row[2].rstrip("%"), 100 * moved / weights, 6e-3)
        assert close(row[-1], moved / lr, 2e-3)


def test_the_batch_is_the_runs_first_and_its_targets_follow(step):
    (x, y), batch, decode = step.batch, step.said["From the text to a batch"], step.tokenizer.decode
    assert "4 sequences of 16 characters" in batch.words and "from 0 to 27" in batch.words
    assert f"   The first sequence: {decode(x[0])!r}" in batch.lines
    shown = [re.split(r"  +", line.strip()) for line in batch.lines[-5:]]
    rows = [range(12), map(repr, decode(x[0][:12])), x[0][:12], y[0][:12],
            map(repr, decode(y[0][:12]))]
    assert [row[1:-1] for row in shown] == [list(map(str, row)) for row in rows]
    assert shown[3][1:-2] == shown[2][2:-1] and shown[0][-1] == "..."


def test_every_line_of_source_is_where_it_is_said_to_be_with_the_numbers_of_its_op(step):
    assert max(map(len, step.text.splitlines())) <= WIDTH <= 100
    assert not re.search(r"\([\d, ]+$", step.text, flags=re.M)        # no shape over two lines
    a = step.logits
    assert step.s.dropout or (
        f"-> (4, 16, 28) | mean {a.mean():.3g}, std {a.std():.3g}, from {a.min():.3g} to "
        f"{a.max():.3g}") in step.said["Forward, op by op"].words
    found = re.findall(r"^ +(.+?) +(\S+\.py):(\d+)$", step.text, flags=re.M)
    assert len(found) > 15 and {file for _, file, _ in found} >= {
        "train.py", "model/transformer.py", "model/layers.py", "model/attention.py",
        "minigrad/nn.py", "minigrad/optim.py", "data/batches.py"}
    for shown, file, number in found:
        source = (ROOT / file).read_text(encoding="utf-8").splitlines()[int(number) - 1:]
        joined = " ".join(" ".join(source).split()).replace("( ", "(")
        assert joined.startswith(shown.removesuffix("...")), shown


def ran(n_layer):
    """The ops of a step of the tests' model, in the order of backward; but dropout, which without
    a share to drop does nothing and is not shown."""
    with mg.Recorder() as r:
        model = Transformer(Settings(n_layer=n_layer, n_head=2, n_embd=16, block_size=16)
                            .model_config(28))
        ids = np.zeros((4, 16), int)
        (mg.cross_entropy(model(ids), ids) / 1).backward()
    return [place.op for place in r.places() if place.kind == "op" and place.op != "dropout"]


@pytest.fixture(scope="module")
def three_layers(small_text, tmp_path_factory):
    return stages(explained(small_text, tmp_path_factory.mktemp("out"), "--n_layer", "3",
                            "--gradient_accumulation_steps", "2"))


def test_the_norms_of_gradients_are_said_to_be_of_the_first_batch_if_there_are_more(
        three_layers, step):
    said = ("of a line, and of the one that it leaves in a parameter; of the first of {} batches, "
            "and of all of them.")
    count = step.s.gradient_accumulation_steps
    for stage, n in ((three_layers, 2), (step.said, count)):
        words = stage["Backward, the youngest op first"].words
        assert (said.format(n) in words) == (n > 1)
        assert "The norms of gradients: of the one with which backward comes to the first" in words


def test_each_op_is_below_the_line_that_calls_it_with_its_shapes(three_layers):
    said = three_layers["Forward, op by op"]
    lines, ops = {}, []                     # the last line of source, by its indent
    for shown in said.lines:
        indent = len(shown) - len(shown.lstrip())
        if re.search(r"\.py:\d+$", shown):
            lines[indent] = shown
        elif match := re.match(r" +\| (\w+)  \(", shown):
            ops.append(match[1])
            sign = {"add": " + ", "divide": " / "}.get(match[1], f".{match[1]}(")
            assert sign in lines[indent - 2], shown
    assert ops == ran(1)[::-1]
    assert "| linear (4, 16, 16), attention.qkv.weight (48, 16) -> (4, 16, 48)" in said.words
    of_a_block = (len(ran(3)) - len(ran(1))) // 2
    assert re.findall(r"block (\d): the same (\d+) ops -> (.*?) \|", said.words) == [
        (str(i), str(of_a_block), "(4, 16, 16)") for i in (1, 2)]


def test_backward_goes_through_the_blocks_from_the_last_to_the_first(three_layers):
    said = three_layers["Backward, the youngest op first"]
    assert said.words.startswith("loss.backward()")
    shown = "\n".join(said.lines).replace(",\n" + " " * 33, ", ")       # a long line is wrapped
    order = re.findall(r"^   (outside blocks|block \d) +(\S+) +(\w+(?:, \w+)*)$", shown, re.M)
    assert [where for where, *_ in order] == ["outside blocks", "block 2", "block 1", "block 0",
                                              "outside blocks"]
    assert order[0][1] == "1" and [op for *_, ops in order for op in ops.split(", ")] == ran(3)
    assert order[1][2] == order[2][2] == order[3][2]


def test_resumed_it_explains_the_next_step_of_that_run_and_writes_nothing(small_text, tmp_path):
    def files():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    out_dir = tmp_path / "out"
    explained(small_text, out_dir)
    assert not files()
    run(small_text, out_dir, "--dropout", "0.1", "--max_iters", "10")
    kept = files()
    resume = ["--init_from", "resume", "--out_dir", str(out_dir)]
    assert ("Step 11, after the end of a run of 10, from the text"
            in printed(train.main, [*resume, "--explain"]))
    text = printed(train.main, [*resume, "--explain", "--max_iters", "11"])
    assert "Step 11 of 11, from the text" in text and "At the first step" not in text
    assert files() == kept
    train.main([*resume, "--max_iters", "11"])
    number, loss, *_ = losses(out_dir)[-1]
    assert number == "11" and f"   {float(loss):.4f} nats a character" in text


@pytest.mark.parametrize("channels", ["16", "1"])
def test_a_tiny_model_and_a_step_that_changes_nothing_are_shown(tmp_path, channels, monkeypatch):
    monkeypatch.setattr(mg.AdamW, "__doc__", None)          # as python -OO does
    monkeypatch.setattr(Optimizer, "__doc__", None)
    said = stages(explained(written(tmp_path / "t.txt", "ab" * 12), tmp_path / "out", *(
        "--block_size 1 --batch_size 1 --n_head 1 --learning_rate 0 --min_lr 0 --n_embd".split()),
        channels))
    batch = said["From the text to a batch"]
    assert "1 sequences of 1 characters" in batch.words and "..." not in batch.lines[-1]
    assert "V = 2 characters" in said["Forward, op by op"].words
    assert "AdamW. The learning rate is" in said["The step of AdamW"].words
    assert said["The same characters again"].words.endswith("changed weights it is the same.")


def test_each_optimiser_of_a_step_is_shown_with_its_rate(small_text, tmp_path):
    said = stages(explained(small_text, tmp_path, "--optimizer", "muon", "--muon_lr", "0.06"))
    for name, rate in (("AdamW", "0.001667"), ("Muon", "0.01")):
        assert (f". The learning rate is {rate}, 16.7% of the highest"
                in said[f"The step of {name}"].words)
    _, moved, _, share = rows(said["The step of Muon"])["blocks.0.mlp.up.weight"]
    assert close(share, float(moved) / 0.01, 2e-3)
