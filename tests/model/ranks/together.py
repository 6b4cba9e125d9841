"""Small runs that ranks take together; the first rank writes what became of them, here into
FOLDER/3.npz:

    python -m tests.model.ranks.together 3 FOLDER
"""
import hashlib
import itertools
import sys
from unittest import mock

import numpy as np

import data
import minigrad as mg
import train
from minigrad.random import RowsFrom
from model.start import launcher_rank
from model.run import join
from model.ranks import mpi
from model.ranks.mean import OverRanks
from model.settings import RECIPES, Settings
from tests.kit import run_of
from tests.model.ranks.mpiexec import ranks as in_ranks

STEPS = 50
TINY = dict(n_layer=1, n_head=2, n_embd=16, block_size=8, dropout=0.2, warmup_iters=5,
            max_iters=STEPS, eval_iters=4)
MODERN = RECIPES["modern"] | TINY | dict(ngram_rows=50)
# Of a batch of 5, ranks have unequal rows; of one of 3, one of four ranks has none.
RUNS = {"gpt2": (np.float64, RECIPES["gpt2"] | TINY | dict(
            batch_size=5, gradient_accumulation_steps=2, bias=True, grad_clip=0.1)),
        "modern": (np.float64, MODERN | dict(batch_size=3, ahead=2)),
        "float32": (np.float32, MODERN | dict(batch_size=5))}


def results_of(name, ranks, steps=STEPS):
    """Losses, norms, the last gradient, weights and the optimiser's state after it, and an
    evaluation."""
    dtype, settings = RUNS[name]
    s = Settings(**settings)
    text = data.Text(data.read_text("lantern")[:20_000])
    run = run_of(s, text, ranks, dtype)
    gradients = {}
    model = run.model
    optimizer = run.optimizer

    def step():
        gradients.update({path: p.grad.copy() for path, p in model.named_parameters()
                          if p.grad is not None})
        real()
    real = optimizer.step
    optimizer.step = step
    taken = list(itertools.islice(train.steps(run), steps))
    assert len(set(ranks.gather(run.state.seconds))) == 1, "a clock for each rank"
    names = {id(p): name for name, p in model.named_parameters()}
    return {"losses": np.array([step.loss for step in taken]),
            "norms": np.array([step.norm for step in taken]),
            "evaluation": np.array(run.evaluate().loss),
            **{f"gradient of {path}": g for path, g in gradients.items()},
            **{f"weights of {path}": p.data for path, p in model.named_parameters()},
            **{f"{kind} of {names[id(p)]}": a for kind, p, a in optimizer.state()}}


class MeanOfMeans(OverRanks):
    def __init__(self, ranks, *of):
        super().__init__(ranks, *of)
        self.weight = 1 / ranks.size


class CountedTwice(OverRanks):
    def __init__(self, ranks, *of):
        super().__init__(ranks, *of)
        self.weight *= 1 + (ranks.number == 1)


class DropoutByOwnRow(OverRanks):
    def generator(self, rng):
        return RowsFrom(rng, 0)


class ClippedBefore(OverRanks):
    def average(self, loss):
        mg.clip_grad_norm_(self.parameters, 0.1)
        return super().average(loss)


class LeftOut(OverRanks):
    def __init__(self, ranks, parameters, batch_size):
        super().__init__(ranks, parameters[:-1], batch_size)


class LossOfOwnRows(OverRanks):
    def average(self, loss):
        super().average(loss)
        return loss


WRONG = MeanOfMeans, CountedTwice, DropoutByOwnRow, ClippedBefore, LeftOut, LossOfOwnRows


def main(size, folder):
    """The command, which starts itself in ranks."""
    if launcher_rank() is None:
        ended = in_ranks(int(size), "-m", "tests.model.ranks.together", size, folder)
        sys.exit(ended.returncode and ended.stderr)
    with join("together.py") as ranks:
        found = {}
        assert ranks.any(ranks.number == 1) and not ranks.any(False)
        assert ranks.call_on_first(lambda: ranks.number) == 0
        for name in list(RUNS)[:2] if ranks.size > 3 else RUNS:     # four of them take their time
            results = results_of(name, ranks)
            bits = b"".join(a.tobytes() for a in results.values())
            digests = ranks.gather(hashlib.sha256(bits).hexdigest())
            assert len(set(digests)) == 1, f"ranks differ in {name}"
            found |= {f"{name}/{key}": a for key, a in results.items()}
            again = results_of(name, ranks, steps=5)["losses"]
            assert np.array_equal(again, results["losses"][:5]), f"{name} differs the second time"
        for wrong in WRONG if ranks.size <= 3 else ():
            with mock.patch.object(mpi, "OverRanks", wrong):
                found |= {f"{wrong.__name__}/{key}": a
                          for key, a in results_of("gpt2", ranks, steps=5).items()}
        if ranks.first:
            np.savez(f"{folder}/{size}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
