"""What is drawn for one purpose is moved by no other purpose, and by no setting of another."""
import functools
import itertools

import numpy as np
import pytest

import train
from minigrad.random import PURPOSES, RowsFrom, generator, manual_seed
from model import load_checkpoint
from tests.kit import TINY, refusal


def test_no_two_purposes_and_no_two_seeds_draw_the_same_numbers():
    drawn = [generator(seed, purpose).integers(2**63, size=1000)
             for seed in (0, 1, 2, 1337) for purpose in PURPOSES]
    for a, b in itertools.combinations(drawn, 2):
        assert not np.intersect1d(a, b).size
    for seed in (0, 1337, 2**70 + 5):       # weights, as from NumPy's generator of that seed
        assert generator(seed, "weights").random() == np.random.default_rng(seed).random()


@pytest.mark.parametrize("seed", [-1, 1.5, None, "0"])
def test_manual_seed_refuses_what_is_no_seed(seed):
    assert refusal(ValueError, manual_seed, seed) == (
        f"a seed is a whole number of at least 0, not {seed!r}")


SEEDED = """
import minigrad as mg
from minigrad.random import of_process as rng
print(rng().random(), rng().random())
mg.manual_seed(0)
print(rng().random())
mg.manual_seed(5)
print(rng().random())
"""


@pytest.mark.meanwhile("-c", SEEDED, NUMBA_DISABLE_JIT="1")
def test_manual_seed_begins_the_generator_of_the_process_anew_which_begins_with_0(ended):
    first, again, other = ended.stdout.splitlines()
    assert first.split()[0] == again == str(generator(0, "weights").random())
    assert other == str(generator(5, "weights").random())


@pytest.fixture(scope="module")
def draws(small_text, tmp_path_factory):
    """A function of flags, which says what a run of three steps begins with and how far it draws:
    the initial weights, and where the generators of batches and dropout are left."""
    @functools.cache
    def of(*flags):
        out_dir = tmp_path_factory.mktemp("draws")
        train.main(["--data", str(small_text), "--out_dir", str(out_dir), *TINY,
                    "--dropout", "0.1", "--max_iters", "3", *flags])
        state = load_checkpoint(out_dir / "last.npz").training["state"]
        first = load_checkpoint(out_dir / "previous.npz")
        assert first.training["state"]["iteration"] == 0
        weights = {name: array.tolist() for name, array in first.model.state_dict().items()}
        return {"weights": weights, "batches": state["batches"], "dropout": state["dropout"]}
    return of


@pytest.mark.parametrize("flags, moved", [
    ("", set()),
    ("--eval_interval 3 --eval_iters 0 --always_save_checkpoint", set()),
    ("--threads 1 --profile 1", set()),
    ("--learning_rate 1e-3 --weight_decay 0 --grad_clip 0", set()),
    ("--dropout 0.3", set()),
    ("--dropout 0", {"dropout"}),               # nothing is drawn for it
    ("--batch_size 8", {"batches"}),
    ("--gradient_accumulation_steps 2", {"batches", "dropout"}),
    ("--n_embd 32", {"weights"}),
    ("--n_layer 2", {"weights", "dropout"}),
    ("--seed 2", {"weights", "batches", "dropout"})])
def test_a_setting_moves_the_draws_of_its_own_purpose_alone(draws, flags, moved):
    usual, other = draws(), draws(*flags.split())
    assert {purpose for purpose in usual if other[purpose] != usual[purpose]} == moved


def test_a_generator_of_rows_draws_what_the_one_that_it_is_made_from_would_draw():
    rng = generator(3, "dropout")
    expected = generator(3, "dropout").integers(2**63, size=3)
    assert list(expected) == [r.integers(2**63)
                              for r in (RowsFrom(rng, 5), rng, RowsFrom(rng, 0))]
