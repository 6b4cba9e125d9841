"""Runs that are killed and resumed end as if left alone; python -m tests.reliability tries more."""
import importlib.util
import os
import re
import shlex
import shutil

import pytest

from tests.kit import TINY, compiled_only
from tests.reliability.runs import differences

TINY = " ".join([*TINY, "--recipe modern --ngram_rows 100 --threads 1 --data SMALL_TEXT"])
# An evaluation, a step without one that writes last.npz, and a last evaluation, which is better.
TWO_STEPS = "--max_iters 2 --warmup_iters 1"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no process")


def reliability(words):
    """Mark a test with the command of these words, which runs meanwhile."""
    return pytest.mark.meanwhile("-m", "tests.reliability", *shlex.split(words))


@pytest.fixture
def said(ended):
    """The lines of that command, whose status is 0."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


@reliability(f"writes --every 2 {TWO_STEPS}")
@needs_fork
def test_a_run_killed_at_any_write_rename_or_fsync_ends_as_if_left_alone(said):
    (line,) = said
    places, *rest = line.split(" ")
    assert int(places) > 20 and " ".join(rest) == "places to die, by kill; none ended differently"


@reliability(f"writes --how 'two signals' --every 8 {TWO_STEPS}")
@needs_fork
def test_a_second_signal_at_any_of_these_does_no_harm(said):
    (line,) = said
    assert line.endswith(" places to die, by two signals; none ended differently")


@reliability(f"kills --count 3 --steps 300 --interval 0.1 {TINY}")
def test_a_run_killed_at_random_moments_ends_as_if_left_alone(said):
    kills, _, lost, equal = said
    assert kills.split()[1] == "3,"     # a run may end before its kill, and another then begins
    assert re.fullmatch(r"bit-equal at the end +([1-9]\d*) of \1 runs", equal)


@reliability("bits --rounds 0 --only softmax layer_norm rms_norm cross_entropy")
@compiled_only
def test_sums_over_rows_have_the_same_bits_however_they_are_compiled(said):
    first, *others = said
    assert int(first.split()[0]) > 50
    assert [line.rpartition(": ")[0] for line in others] == ["compiled without vectorisers",
                                                             "loaded without vectorisers"]


# In so short a time, 1 % is no more than the two arenas that Python may take at any moment.
@reliability(f"soak --seconds 3 --period 1 --within 2 --eval_interval 100 {TINY}")
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
def test_long_training_takes_no_more_memory(said):
    assert said[2].startswith("farthest from the second")


FUZZED = ["tokenizer", "data", "flags", *(
    target for target, library in (("nanogpt", "torch"), ("folder", "safetensors"))
    if importlib.util.find_spec(library))]


@reliability(f"fuzz --plain --count 1000 --target {' '.join(FUZZED)}")
def test_random_input_has_a_plain_answer(said):
    for line, target in zip(said, FUZZED, strict=True):
        assert re.fullmatch(rf"{target} +1,000 inputs at random, .*: .*accepted, .* refused", line)


@reliability("damage --count 500 --every 29")
def test_a_damaged_checkpoint_is_refused_whatever_the_damage(said):
    size, *files, wrong = (int(re.search(r"\d[\d,]*", line)[0].replace(",", "")) for line in said)
    assert files == [-(-2 * size // 29), *2 * [-(-size // 29)], 500] and wrong == 0


def test_the_comparison_finds_what_differs(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "other")
    assert differences(trained, tmp_path / "other") == []
    (tmp_path / "other" / "last.npz").write_bytes((trained / "previous.npz").read_bytes())
    (tmp_path / "other" / "log.csv").write_text("iter\n1\n", encoding="utf-8")
    found = " ".join(differences(trained, tmp_path / "other"))
    for what in ("log.csv: ", "last.npz: model/", "last.npz: optimizer/m/", "last.npz: state/bat"):
        assert what in found
    assert "ckpt.npz" not in found
