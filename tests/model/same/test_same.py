"""What is published comes out here too, whatever computes it; and the command says whether it does;
if not, what differs first, and what to do.

A change that is meant to give other results publishes them anew:

    python -m tests.reference.make_short_run
"""
import json
import sys
import time

import numba
import numpy as np
import pytest

import minigrad as mg
from minigrad import compiled, formulas
from minigrad.kernels.compiler import processor
from model.same import __main__ as same, runs
from model.same.runs import FILE, digest, masks, short_run
from tests.kit import both_types, compiled_only, refused

pytestmark = pytest.mark.late
PUBLISHED = json.loads(FILE.read_text(encoding="utf-8"))


@both_types
@pytest.mark.parametrize("threads", [1, numba.config.NUMBA_NUM_THREADS])
def test_dropout_keeps_what_is_published(by_every_way, threads, dtype):
    numba.set_num_threads(threads)
    assert digest("u1", *masks(dtype)) == PUBLISHED["masks"]


def test_a_run_draws_and_computes_what_is_published(by_every_way):
    assert same.in_float64(short_run(), PUBLISHED) is None


def answer(capsys):
    """The exit status of the command, and what it prints."""
    with pytest.raises(SystemExit) as caught:
        same.main([])
    return caught.value.code, capsys.readouterr().out


@pytest.fixture
def as_published(monkeypatch):
    """Take for published what this processor computes, as it may round a product and its sum."""
    if not processor.fuses():
        published = PUBLISHED | {"float32": {r: same.float32_run(r)[0] for r in same.RECIPES}}
        monkeypatch.setattr(json, "loads", lambda text: published)


@compiled_only
def test_main_answers_in_one_line_that_all_bits_are_published(as_published, capsys):
    status, said = answer(capsys)
    assert status == 0 and said.startswith("all bits are those published (")
    assert said.count("\n") == 1 and f"NumPy {np.__version__}, Numba " in said


def test_first_difference_shows_its_bar_below_the_line_on_compiling(capsys, monkeypatch):
    def run(recipe):
        print("compiling", file=sys.stderr)
        time.sleep(0.11)            # tqdm shows no more than ten changes a second
        return PUBLISHED["float32"][recipe], []
    monkeypatch.setattr(same, "float32_run", run)
    monkeypatch.setattr(same, "short_run", lambda: PUBLISHED)
    monkeypatch.setattr(same, "masks", lambda dtype: [])
    same.first_difference(PUBLISHED)
    said = capsys.readouterr().err
    assert said.startswith("compiling\n") and "short runs" in said


@pytest.mark.parametrize("limit, counts", [(1, [1]), (2, [1, 2]), (5, [1, 5])])
def test_first_difference_runs_both_recipes_on_one_thread_and_on_all(limit, counts, monkeypatch):
    taken = []
    monkeypatch.setattr(compiled, "thread_limit", lambda: (limit, ""))
    monkeypatch.setattr(compiled, "set_threads", lambda n: taken.append([n]))
    monkeypatch.setattr(same, "float32_run", lambda recipe: (
        taken[-1].append(recipe) or PUBLISHED["float32"][recipe], []))
    monkeypatch.setattr(same, "short_run", lambda: PUBLISHED)
    monkeypatch.setattr(same, "in_float64", lambda *_: None)
    assert same.first_difference(PUBLISHED) is None
    assert taken == [[n, recipe] for recipe in same.RECIPES for n in counts]


@pytest.mark.parametrize("wrong", [1, 5])
def test_first_difference_names_the_threads_that_gave_other_bits(wrong, monkeypatch):
    run = PUBLISHED["float32"]["modern"]
    taken = []
    monkeypatch.setattr(compiled, "thread_limit", lambda: (5, ""))
    monkeypatch.setattr(compiled, "set_threads", taken.append)
    monkeypatch.setattr(same, "float32_run", lambda recipe: (
        run | {"bits": ""} if taken[-1] == wrong else run, []))
    assert f"in float32 with --threads {wrong}, " in same.first_difference(PUBLISHED)


@compiled_only
@pytest.mark.parametrize("formula, array, where", [
    ("norm", lambda args, result: result[0], "rms_norm of step 1"),
    ("attention", lambda args, result: result[0], "self_attention of step 1"),
    ("self_attention_vjp", lambda args, result: result, "the gradient of self_attention of step 1"),
    ("adamw_of_each", lambda args, result: args[0][0][0], "the update of the weights of step 1")])
def test_main_names_what_has_another_bit_first(as_published, capsys, monkeypatch, formula, array,
                                               where):
    right = getattr(formulas, formula)

    def wrong(*args, **settings):
        result = right(*args, **settings)
        first = array(args, result).flat
        first[0] = np.nextafter(first[0], np.float32(np.inf))
        return result
    monkeypatch.setattr(formulas, formula, wrong)
    monkeypatch.setitem(runs.SMALL, "max_iters", 2)
    status, said = answer(capsys)
    assert status == 1 and said.count("\n") == 1
    assert said.startswith(f"not the published bits: --recipe modern in float32 with --threads 1, "
                           f"first in {where}; ")
    assert "report this line" in said


@pytest.mark.parametrize("change, said", [
    ({}, None), ({"sample": "0"}, "sample: drawn otherwise"), ({"batches": ""}, "batches: drawn"),
    ({"losses": [loss + 3e-9 for loss in PUBLISHED["losses"]]}, "losses are up to 3e-09 nats away"),
    ({"losses": [np.nan, *PUBLISHED["losses"][1:]]}, "losses are up to nan nats away"),
    ({"losses": [*PUBLISHED["losses"][:-1], np.nan]}, "losses are up to nan nats away"),
    ({"run": "0"}, "losses are up to 0 nats away, and weights round otherwise")])
def test_in_float64_says_what_differs(change, said):
    found = same.in_float64(PUBLISHED | change, PUBLISHED)
    assert found is None if said is None else said in found


@pytest.mark.parametrize("compiled, fuses, said", [
    (False, True, "install Numba"), (True, False, "take one with FMA or NEON"),
    (True, True, "report this line")])
def test_advice_fits_what_computes(monkeypatch, compiled, fuses, said):
    monkeypatch.setattr(mg, "COMPILED", compiled)
    monkeypatch.setattr(processor, "fuses", lambda: fuses)
    assert said in same.advice()


def test_in_float32_says_which_loss_is_the_first_that_differs():
    run = PUBLISHED["float32"]["modern"]
    first, second, *others = run["losses"]
    assert same.in_float32(run | {"losses": [first, second + 0.25, 9, *others[1:]]}, run, []) == (
        "in bits that leave no mark; the loss of step 2 is 0.25 nats away")


def test_in_float32_says_where_bits_differ_that_leave_no_mark():
    run = PUBLISHED["float32"]["modern"]
    assert same.in_float32(run, run | {"bits": ""}, []) == (
        "in bits that leave no mark; all losses are equal")


def test_main_refuses_what_it_does_not_take(capsys):
    assert "there is no flag --minutes" in refused(capsys, "--minutes", "1", main=same.main)
