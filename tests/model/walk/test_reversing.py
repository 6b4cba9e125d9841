"""The trained model whose weights the page shows: the diagonal runs the wrong way."""
import dataclasses

import numpy as np

from model.walk import reversing

SHORT = dataclasses.replace(reversing.SETTINGS, block_size=4, max_iters=120, warmup_iters=20,
                            eval_interval=1000, n_layer=1)


def test_a_letter_of_the_answer_looks_most_at_the_letter_that_it_repeats_and_only_back():
    across, string, answer = reversing.pictures(SHORT, "wxyz")
    assert across.rows[:4] == list("zyxw") and across.columns == list("wxyz")
    assert np.argmax(across.values[:4], axis=1).tolist() == [3, 2, 1, 0]
    assert across.title.endswith(": wxyz, zyxw")
    assert not np.isnan(string.values).any()
    assert np.isnan(answer.values).tolist() == np.triu(np.ones((5, 5)), 1).astype(bool).tolist()
