"""Only the first rank writes."""
import math

import data
from model import Transformer
from model.processes import Ranks
from model.run import Folder, Run, optimizer_of
from model.report import stopped
from model.settings import Settings


class Rank(Ranks):
    """One of two, which is told nothing by the other."""
    size = 2

    def __init__(self, number):
        self.number = number


def test_of_two_ranks_only_the_first_touches_the_folder(small_text, tmp_path):
    s, text = Settings(n_layer=1, n_embd=8, max_iters=1), data.Text.read(str(small_text))
    left = []
    for number in (0, 1):
        model, ranks = Transformer(s.model_config(text.tokenizer.vocab_size)), Rank(number)
        with Folder(tmp_path / str(number), ranks) as folder:
            run = Run(s, text, model, optimizer_of(model, s, ranks), folder, ranks=ranks)
            run.begin()
            _, loss = run.evaluate_and_save()
            run.save("ckpt.npz")
            assert run.state.evaluated == 0 and math.isclose(run.state.best, loss)
            assert "; all is kept in " in stopped(run)
        left.append({path.name for path in tmp_path.glob(f"{number}/*")})
    assert left == [{"ckpt.npz", "last.npz", "log.csv", ".lock"}, set()]
