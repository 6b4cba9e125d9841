"""What model/same/published.json has comes out here too, whatever computes it.

A change that is meant to give other results publishes them anew:

    python -m tests.reference.make_short_run
"""
import json

import numba
import pytest

from minigrad.kernels.compiler import processor
from model.same.__main__ import in_float64
from model.same.runs import FILE, digest, float32_run, masks, short_run
from model.settings import RECIPES
from tests.kit import both_types

PUBLISHED = json.loads(FILE.read_text(encoding="utf-8"))


@both_types
@pytest.mark.parametrize("threads", [1, numba.config.NUMBA_NUM_THREADS])
def test_dropout_keeps_what_is_published(by_every_way, threads, dtype):
    numba.set_num_threads(threads)
    assert digest("u1", *masks(dtype)) == PUBLISHED["masks"]


def test_a_run_draws_and_computes_what_is_published(by_every_way):
    assert in_float64(short_run(), PUBLISHED) is None


@pytest.mark.skipif(numba.config.DISABLE_JIT or not processor.fuses(),
                    reason="plain NumPy and such a processor round otherwise")
@pytest.mark.parametrize("threads", [1, numba.config.NUMBA_NUM_THREADS])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_in_float32_has_every_bit_that_is_published(recipe, threads):
    numba.set_num_threads(threads)
    assert float32_run(recipe)[0] == PUBLISHED["float32"][recipe]
