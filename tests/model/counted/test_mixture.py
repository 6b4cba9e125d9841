"""A model mixed with counted n-grams: what it writes, its score, its proof, and what is refused."""
import re

import numpy as np
import pytest

import minigrad as mg
import train
from data import Text
from model import Transformer, TransformerConfig, load_checkpoint, sample, save_checkpoint
from model.counted import mixture, tree
from model.counted.mixture import Mixture, with_counts
from model.generation import Reader, generate
from model.scoring import evaluate, mean_losses
from model.score.text import text_losses, training_text
from tests.kit import opinionated, refusal, split, written

pytestmark = pytest.mark.late
V = 13
PARTS = [
    dict(),
    dict(position="rotary", norm="rms", qk_norm=True, activation="relu2", ngrams=3, ngram_rows=50),
]


def mixed(order=4, weight=0.3, block=8, **parts):
    model = opinionated(TransformerConfig(
        V, block, n_layer=2, n_head=2, n_embd=8, **parts), 20)
    ids = np.random.default_rng(5).integers(V, size=400)
    return Mixture(model, tree.count_ngrams(ids, V, order), order, weight)


@pytest.mark.usefixtures("by_every_way")
def test_each_probability_is_mixed_of_both_and_all_sum_to_1():
    made = mixed()
    ids = np.random.default_rng(1).integers(V, size=(3, 8))
    p = np.exp(made(ids).data.astype(np.float64))
    with mg.no_grad():
        own = mg.softmax(made.model(ids)).data
    counted = tree.distributions(made.tree, tree.contexts(ids, 4).reshape(-1, 3), V)
    np.testing.assert_allclose(p, 0.7 * own + 0.3 * counted.reshape(3, 8, V), atol=1e-6)
    assert abs(p.sum(axis=-1) - 1).max() < 1e-6
    parts = [np.exp(logp) for _, logp in made.log_probabilities(ids)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), p, atol=1e-6)


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("parts", PARTS, ids=["gpt2", "modern"])
def test_cached_logits_have_the_bits_of_the_window_at_every_length(parts, order, slide):
    if not mg.COMPILED:
        pytest.skip("in plain NumPy the last bits differ, as BLAS adds up in another order")
    made = mixed(order, **parts)
    ids = np.random.default_rng(2).integers(V, size=(2, 30))
    cached, computed = [Reader(made, ids[:, :1], cache=cache, slide=slide)
                        for cache in (True, False)]
    assert cached.cache is not None and computed.cache is None
    for n in range(1, 30):
        a = cached.logits()
        b = computed.logits()
        assert a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes(), n
        for reader in (cached, computed):
            reader.append(ids[:, n:n + 1])


@pytest.mark.usefixtures("by_every_way")
def test_losses_of_a_text_are_those_that_its_reader_would_have_one_by_one():
    made = mixed(order=3)
    ids = np.random.default_rng(3).integers(V, size=40)
    reader = Reader(made, ids[None, :1])
    losses = []
    for x in ids[1:]:
        losses.append(-reader.logits()[0, x])
        reader.append(np.array([[x]]))
    np.testing.assert_allclose(text_losses(made, ids), losses, atol=1e-4)


def test_weight_0_is_the_model_and_weight_1_the_counts():
    ids = np.random.default_rng(4).integers(V, size=(2, 8))
    alone = mixed(weight=0.0)
    with mg.no_grad():
        own = mg.log_softmax(alone.model(ids)).data
    np.testing.assert_allclose(alone(ids).data, own, atol=1e-5)
    counts = mixed(weight=1.0)
    expected = tree.distributions(counts.tree, tree.contexts(ids, 4).reshape(-1, 3), V)
    np.testing.assert_allclose(np.exp(counts(ids).data).reshape(-1, V), expected, atol=1e-6)


def test_mean_losses_are_those_of_each_mixture_alone():
    made = mixed()
    rng = np.random.default_rng(6)
    x, y = rng.integers(V, size=(2, 7, 8))
    y[3, 5:] = -100
    both = mean_losses(made.model, [made], x, y, 3)
    assert both[0] == evaluate(made.model, x, y, 3) != both[1]
    assert np.isclose(both[1], evaluate(made, x, y, 3), rtol=1e-6)


# The command

def sampled(capsys, folder, *flags):
    sample.main(split(["--out_dir", folder, *flags]))
    return capsys.readouterr()


def test_counted_writes_the_same_text_with_and_without_the_cache(trained, capsys):
    texts = [sampled(capsys, trained, f"--max_new_tokens 60 --num_samples 2 {more}").out
             for more in ("", "--counted 5", "--counted 5 --no-cache",
                          "--counted 5 --counted_weight 0")]
    assert texts[1] == texts[2] != texts[0] == texts[3]


@pytest.mark.parametrize("flags", ["--temperature 0", "--top_k 2 --temperature 3", "--top_p 0.1",
                                   "--slide", "--stop r"])
def test_counted_comes_before_every_option_of_sampling(trained, capsys, flags):
    """What the options leave is left of the mixture, in both ways of reading."""
    cached, computed = [
        sampled(capsys, trained, f"--counted 6 --max_new_tokens 50 --start the {flags} {more}").out
        for more in ("", "--no-cache")]
    assert cached == computed
    assert cached != sampled(capsys, trained, "--counted 6 --max_new_tokens 50 --start the").out


def test_the_likeliest_of_the_counts_alone_is_what_they_saw_most_often(trained):
    checkpoint = with_counts(load_checkpoint(trained / "ckpt.npz"), 4, 1.0)
    counted = training_text(checkpoint.training, checkpoint.tokenizer).parts()[0]
    text = generate(checkpoint.model, checkpoint.tokenizer, "fox", 1, temperature=0)
    followers = [counted[i + 3] for i in range(len(counted) - 3) if counted[i:i + 3] == "fox"]
    assert text[3] == max(set(followers), key=followers.count)


def test_the_validation_split_is_not_counted(trained):
    checkpoint = load_checkpoint(trained / "ckpt.npz")
    text = training_text(checkpoint.training, checkpoint.tokenizer)
    counted = with_counts(checkpoint, 3).model.tree
    assert counted.counts[0] == len(text.train) < len(text)


def test_a_score_with_counts_is_below_that_of_the_model_and_is_proven(trained, tmp_path, capsys):
    text = "the quick brown fox runs over the green wood"
    path = written(tmp_path / "t.txt", text)
    alone, both = [sampled(capsys, trained, "--score", path, *more).out
                   for more in ([], ["--counted", "6", "--prove"])]
    checkpoint = with_counts(load_checkpoint(trained / "ckpt.npz"), 6)
    loss = text_losses(checkpoint.model, checkpoint.tokenizer.encode(text)).mean()
    assert f"    {loss:.4f}  nats a character\n" in both
    assert loss < float(re.search(r"(\S+)  nats", alone)[1])
    assert f"    {loss:.3f}  this model, with the counted 6-gram  <--\n" in both
    assert "the proof:" in both and "the text was restored" in both


def test_the_usual_weight_is_that_of_the_last_report(trained, capsys):
    usual, weighed = [sampled(capsys, trained, f"--counted 5 --max_new_tokens 60 {more}").out
                      for more in ("", f"--counted_weight {mixture.WEIGHT}")]
    assert usual == weighed and sample.Settings().counted_weight == mixture.WEIGHT


def test_the_counts_of_a_fine_tuned_model_are_those_of_its_own_text(trained, tmp_path, capsys):
    path = written(tmp_path / "new.txt", "the lazy fox over there is brown " * 30)
    out_dir = tmp_path / "out"
    train.main(split(["--init_from", trained, "--data", path, "--out_dir", out_dir,
                      "--max_iters 2 --eval_interval 2 --eval_iters 1"]))
    reported = re.search(r"(\S+)  this model, with the counted 9-gram\n", capsys.readouterr().out)
    checkpoint = load_checkpoint(out_dir / "ckpt.npz")
    text = training_text(checkpoint.training, checkpoint.tokenizer)
    made = with_counts(checkpoint, 9).model
    assert made.tree.counts[0] == len(text.train) < len(text) == 990
    assert reported[1] == f"{evaluate(made, *text.windows(16), 4):.3f}"
    options = "--counted 9 --counted_weight 1 --temperature 0 --start over --max_new_tokens 15"
    assert sampled(capsys, out_dir, options).out == "over there is brown\n"


def test_the_mean_of_several_models_is_mixed_too(trained, tmp_path, capsys):
    path = written(tmp_path / "t.txt", "the quick brown fox")
    one, two = [sampled(capsys, *folders, "--score", path, "--counted", "4").out
                for folders in ([trained], [trained, trained])]
    assert one == two


@pytest.mark.parametrize("flags, said", [
    ("--counted 0", "--counted is at least 1, not 0"),
    ("--counted 3 --counted_weight 1.5", "--counted_weight is at least 0 and at most 1, not 1.5"),
    ("--counted 3 --counted_weight=-1", "--counted_weight is at least 0 and at most 1, not -1"),
    ("--counted_weight 0.3", "--counted_weight is a share of counted n-grams; give --counted 9"),
    ("--counted", "--counted"), ("--counted two", "--counted")])
def test_counted_refuses_orders_and_weights_in_a_line(trained, capsys, flags, said):
    refusal(SystemExit, sampled, capsys, trained, flags)
    line, = capsys.readouterr().err.splitlines()
    assert said in line


def test_an_order_that_is_too_large_is_refused_with_one_that_is_not(trained, capsys):
    line = refusal(SystemExit, sampled, capsys, trained, "--counted 13")
    assert "--counted is at most 12 for 28 different characters, not 13" in line
    assert line.endswith("; give 9")
    assert sampled(capsys, trained, "--counted 12 --max_new_tokens 20").out


@pytest.mark.parametrize("change, said", [
    (lambda path: path.unlink(), "there are no n-grams to mix in, because"),
    (lambda path: path.write_text("something else " * 40), "is no longer the one")])
def test_a_text_that_is_gone_or_has_changed_is_refused_in_a_line(best, tmp_path, capsys, change,
                                                                 said):
    path = written(tmp_path / "text.txt", "the quick brown fox jumps over the lazy dog " * 9)
    text = Text.read(str(path))
    training = {"settings": {"data": [str(path)]}, "text": text.digest}
    model = Transformer(TransformerConfig(text.tokenizer.vocab_size, 8, 1, 1, 4))
    save_checkpoint(tmp_path / "ckpt.npz", model, text.tokenizer, training)
    assert len(sampled(capsys, tmp_path, "--counted 3 --max_new_tokens 9").out) == 10
    change(path)
    line = refusal(SystemExit, sampled, capsys, tmp_path, "--counted 3")
    assert said in line and line.endswith("; leave out --counted") and "\n" not in line


def test_a_model_that_names_no_text_is_refused_in_a_line(best, tmp_path, capsys):
    save_checkpoint(tmp_path / "ckpt.npz", *best)
    line = refusal(SystemExit, sampled, capsys, tmp_path, "--counted 3")
    assert "the checkpoint does not say which text it was trained on; leave out --counted" in line


@pytest.mark.needs("convert")
def test_n_grams_of_tokens_are_mixed_into_a_model_of_tokens(of_tokens, tmp_path, capsys):
    path = written(tmp_path / "text.txt", "the quick brown fox jumps over the lazy dog " * 9)
    model, tokenizer, *_ = load_checkpoint(of_tokens / "ckpt.npz")
    training = {"settings": {"data": [str(path)]}, "text": Text.read(str(path)).digest}
    save_checkpoint(tmp_path / "ckpt.npz", model, tokenizer, training)
    texts = [sampled(capsys, tmp_path, f"--start the --counted_weight 1 --counted 7 {more}").out
             for more in ("--temperature 0", "--temperature 0 --no-cache")]
    assert texts[0] == texts[1] and "quick brown fox jumps over the lazy dog the" in texts[0]


def test_usual_mixtures_leave_out_tokens_and_very_long_texts(small_text, monkeypatch):
    text = Text.read(str(small_text))
    model = Transformer(TransformerConfig(text.tokenizer.vocab_size, 8, 1, 1, 4))
    one, = mixture.usual_mixtures(model, text)
    assert (one.order, one.weight, one.model) == (9, 0.25, model)
    monkeypatch.setattr(type(text.tokenizer), "unit", "token")
    assert mixture.usual_mixtures(model, text) == []
    monkeypatch.undo()
    monkeypatch.setattr(mixture, "MOST", len(text.train) - 1)
    assert mixture.usual_mixtures(model, text) == []
