"""What stands in for a formula gives what the formula gives; and the formulas do without it."""
import inspect

import numba
import numpy as np
import pytest

import minigrad as mg
from minigrad import formulas, random
from minigrad.kernels.compiler import compiling
from minigrad.plug import formula
from tests import plain
from tests.checking import assert_close, frozen
from tests.kit import both_types, compiled_only, normal
from tests.minigrad.op_examples import (EXAMPLES, Normal, Whole, applied, call, computed,
                                        in_another_layout, in_strides, ints, leaves)
from tests.minigrad.ragged_examples import RAGGED


@both_types
@pytest.mark.parametrize("name,args,settings", EXAMPLES + RAGGED)
def test_an_op_gives_the_same_by_kernels_on_any_layout_and_threads(
        name, args, settings, dtype, monkeypatch):
    with monkeypatch.context() as patched:
        plain.use(patched)
        expected = computed(name, args, settings, dtype, np.array)
        if dtype == np.float64:         # NumPy adds up strided float32 with another rounding
            for strided, stated in zip(computed(name, args, settings, dtype, in_another_layout),
                                       expected, strict=True):
                assert np.allclose(strided, stated, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(compiling, "FEW", 1)        # so that a few numbers are shared by threads
    for layout in (np.array, in_another_layout, in_strides):
        found = {}
        for threads in {1, numba.get_num_threads()}:
            numba.set_num_threads(threads)
            found[threads] = computed(name, args, settings, dtype, layout)
            for ours, stated in zip(found[threads], expected, strict=True):
                assert_close(ours, stated, dtype)
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
        assert all(map(np.array_equal, found[1], found[max(found)]))


# Where nan and infinities are put: into each argument, and into the gradient of the value.
AT_THE_EDGE = [
    *[call(name, Normal(5, 7)) for name in ("gelu", "softmax")],
    call("gelu", Normal(5, 7), "tanh"),
    call("swiglu", Normal(5, 7), Normal(5, 7)),
    call("dropout", Normal(5, 7), 0.5, frozen),
    call("cross_entropy", Normal(5, 7), ints([0, -100, 6, -100, 2])),
    call("layer_norm", Normal(5, 7), Normal(7), Normal(7)),
    call("rms_norm", Normal(5, 7), Normal(7)),
    call("linear", Normal(5, 7), Normal(3, 7), Normal(3)),
    *[call("mlp", Normal(5, 7), Normal(4, 7), Normal(4), Normal(3, 4), Normal(3), activation)
      for activation in ("gelu", "gelu_tanh", "relu2")],
    call("qk_norm", Normal(1, 5, 12), 2, 4, 1e3),
    call("embedding_bag", Whole(6, 5, 3), Normal(6, 7), 0.4, frozen),
    *[call("scaled_dot_product_attention", *[Normal(1, 2, 5, 4)] * 3, None, p, False, None, frozen)
      for p in (0.0, 0.5)],
]


@pytest.mark.parametrize("name,args,settings", AT_THE_EDGE)
def test_an_op_gives_nan_and_infinities_where_its_formulas_do(name, args, settings, monkeypatch):
    def found(arrays, at, where, value):
        tensors = leaves(arrays, lambda a: a.astype(np.float32))
        with np.errstate(all="ignore"):
            if at < len(tensors):
                tensors[at].data[where] = value
            out = applied(name, arrays, settings, tensors)
            g = np.cos(np.arange(out.size)).reshape(out.shape).astype(np.float32)
            if at == len(tensors):
                g[where] = value
            out.backward(g)
        return [out.data, *[x.grad for x in tensors]]

    count = len(leaves(args, np.array))
    for at in range(count + 1):
        for where in (..., np.s_[..., -1:], np.s_[:1]):
            if name == "cross_entropy" and at == count:
                where = ...
            for value in (np.nan, np.inf, -np.inf):
                ours = found(args, at, where, value)
                with monkeypatch.context() as patched:
                    plain.use(patched)
                    stated = found(args, at, where, value)
                for one, other in zip(ours, stated, strict=True):
                    for kind in (np.isnan, np.isposinf, np.isneginf):
                        assert np.array_equal(kind(one), kind(other)), (at, where, value)
                    usual = np.isfinite(other)
                    assert_close(one[usual], other[usual], np.float32)


PLUGGED = {name: f for module in (formulas, random) for name, f in vars(module).items()
           if hasattr(f, "kernel")}


@compiled_only
@pytest.mark.parametrize("name", PLUGGED)
def test_a_kernel_stands_in_for_a_formula_with_the_same_arguments(name):
    f = PLUGGED[name]
    assert f.kernel.__module__.startswith("minigrad.kernels.")
    takes, stated = (inspect.signature(g).parameters for g in (f.kernel, f))
    assert [*takes] == [*stated]
    assert f.plain.__module__ == f.__module__ and f.plain is not f.kernel


def test_every_formula_has_a_plug_but_parts_of_others_and_whole_numbers():
    parts = {"activated", "attention_scores", "column_sum", "dropout_factors", "for_each_head",
             "formula", "gelu_and_slope", "inverse_rms", "join_heads", "kept_elements",
             "ngram_rows", "row_mean", "row_sum", "rows", "sigmoid", "split_heads", "sum_of_heads",
             "value_and_slope", "view_of_heads"}
    # What they call, or their callers, have kernels.
    composed = {"linear_vjp", "self_attention", "adamw", "muon", "muon_length", "equalize_rows"}
    stated = {name for name, f in vars(formulas).items()
              if inspect.isfunction(f) and f.__module__ == formulas.__name__}
    assert PLUGGED.keys() == stated - parts - composed | {"draw"}


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None       # neither can be imported
import numpy as np
import minigrad as mg
from model import CharTokenizer, Transformer, TransformerConfig, generate
assert not mg.COMPILED and "minigrad.kernels" not in sys.modules
assert not any(name.startswith("minigrad.watch.") for name in sys.modules)
model = Transformer(TransformerConfig(3, 8, 1, 2, 8, 0.1, ngrams=2, qk_norm=True), 0, np.float64)
parameters = model.parameters()
matrices = [p for p in parameters if p.ndim == 2 and p.shape[1] == 8][2:]
others = [p for p in parameters if all(p is not matrix for matrix in matrices)]
optimizer = mg.Optimizers([mg.Muon(matrices), mg.AdamW(others, 0.02)])
rng, ids, losses = np.random.default_rng(0), np.arange(16).reshape(2, 8) % 3, []
for _ in range(40):
    loss = mg.cross_entropy(model(ids, rng=rng), (ids + 1) % 3)
    loss.backward()
    mg.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
assert generate(model, CharTokenizer("abc"), "abc", 20, temperature=0) == "abc" * 7 + "ab"
assert mg.gradcheck(mg.softmax, rng.random((2, 3)))
assert mg.Recorder and mg.Profile
"""


@pytest.mark.meanwhile("-c", WITHOUT_NUMBA)
def test_all_of_training_and_sampling_works_where_there_is_no_numba(ended):
    assert ended.stderr == ""
    assert ended.returncode == 0


# The plug for kernels

@formula
def square(x, times=1):
    """x^2, so many times."""
    return x ** 2 * times


@pytest.fixture(autouse=True)
def plain_again(monkeypatch):
    """A kernel that a test plugs in is taken out after it."""
    for f in (square, formulas.softmax):
        monkeypatch.setattr(f, "kernel", f.kernel)


def test_formula_computes_by_its_kernel_if_there_is_one():
    assert square.kernel is None
    assert square(3) == square.plain(3) == 9
    square.kernel = lambda x, times=1: -x * times
    assert square(3) == -3
    assert square(3, times=2) == -6
    assert square.plain(3) == 9
    assert square.__name__ == "square"
    assert square.__doc__ == "x^2, so many times."


def test_formula_leaves_any_other_error_of_a_kernel_to_the_caller():
    def wrong(x):
        raise ValueError("x")
    square.kernel = wrong
    with pytest.raises(ValueError, match="x"):
        square(3)
    assert square.kernel is wrong


@compiled_only
def test_stands_in_for_unplugs_a_kernel_that_cannot_be_compiled_and_says_so_once(monkeypatch):
    def broken(f):
        raise RuntimeError("no such instruction")
    monkeypatch.setattr(compiling, "_njit", broken)
    monkeypatch.setattr(compiling, "KERNELS", {})

    @compiling.kernel
    def never_compiled(x: compiling.C2, out: compiling.C2):
        out[:] = 0

    @compiling.stands_in_for(formulas.softmax)
    def by_kernel(x):
        never_compiled(x, np.empty_like(x))
    assert formulas.softmax.kernel is by_kernel
    x = normal(3, 4)
    with pytest.warns(RuntimeWarning, match="softmax is left to NumPy.*no such in") as said:
        assert np.array_equal(mg.softmax(x).data, formulas.softmax.plain(x))
    assert said[0].filename == mg.network.__file__      # the caller of the formula
    assert formulas.softmax.kernel is None
    assert np.array_equal(mg.softmax(x).data, formulas.softmax.plain(x))


@compiled_only
def test_stands_in_for_computes_the_formula_where_its_kernel_calls_one_that_cannot_be_compiled():
    @compiling.stands_in_for(square)
    def by_kernel(x, times=1):
        raise compiling.CannotCompile("square_kernel: no such instruction")

    @formula
    def cube(x):
        return x * square(x)

    @compiling.stands_in_for(cube)
    def cube_by_kernel(x):
        return x * by_kernel(x)
    with pytest.warns(RuntimeWarning, match="could not compile square_kernel") as said:
        assert cube(2) == 8
    assert len(said) == 2 and cube.kernel is None and square.kernel is None


FAILS_LATE = """
import sys
sys.modules["minigrad.kernels.rows"] = None         # is imported after others have been plugged in
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import minigrad
from minigrad import plug
print(minigrad.COMPILED, len(said), {f.kernel for f in plug.FORMULAS})
"""


@pytest.mark.meanwhile("-c", FAILS_LATE, NUMBA_DISABLE_JIT="0")
def test_no_kernel_stays_plugged_in_where_one_of_their_files_cannot_be_loaded(ended):
    assert ended.stdout == "False 1 {None}\n"
