"""Another library in a process of its own.  Nothing of minigrad is loaded there, because minigrad
changes how memory and threads are used."""
import contextlib
import dataclasses
import importlib.util
import math
import multiprocessing
import os
import signal
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

from tests.benchmarks.sizes import ENVIRONMENT
from tests.benchmarks.timing import Seconds

ABSENT = "PyTorch: absent, because it is not installed"
_sides = {}         # over there: the object


def has_pytorch():
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def jax_is_absent():
    """Return why there is no column for JAX; "" if there is one."""
    missing = [name for name in ("jax", "optax") if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return (f"JAX: absent, because {' and '.join(missing)} cannot be imported; install both with "
            "python -m pip install jax optax")


class Remote:
    """An object in a process of its own: a context, which ends it.

    Parameters
    ----------
    name : of a file beside this one, and of a class in it.
    settings : its arguments.

    Raises
    ------
    RuntimeError : something went wrong over there.
    """

    def __init__(self, name, settings):
        # Ctrl-C ends the process without a traceback.
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), signal.signal,
                                         (signal.SIGINT, signal.SIG_DFL))
        with environment_before_minigrad():
            self._pool.submit(_make, name, settings).result()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._pool.shutdown()

    def call(self, method, *arguments):
        """Return what a method returns."""
        return self.ask(method, *arguments)[0]

    def time(self, method, *arguments):
        """Return the seconds of a method."""
        return Seconds(self.ask(method, *arguments)[1])

    def ask(self, method, *arguments):
        """Return what a method returns, and the seconds that it takes over there."""
        return self._pool.submit(_answer, method, arguments).result()


def _make(name, settings):
    """Make the object, over there."""
    with _in_a_line():
        file, _, kind = name.partition(".")
        side = importlib.import_module(f"tests.benchmarks.{file}")
        _sides["it"] = getattr(side, kind)(**settings)


def _answer(method, arguments):
    """Return what the object's method returns, and the seconds that it takes."""
    with _in_a_line():
        started = time.perf_counter()
        result = getattr(_sides["it"], method)(*arguments)
        return result, time.perf_counter() - started


@contextlib.contextmanager
def _in_a_line():
    try:
        yield
    except Exception as error:      # a compiler has many ways to fail
        said = str(error).strip() or type(error).__name__
        raise RuntimeError(said.splitlines()[0]) from None


def pytorch(model, s, mode="eager"):
    """Return a copy of a Transformer on PyTorch, which trains with these Settings: twin.PyTorch.

    Raises
    ------
    RuntimeError : the twin does not know an option of the model.
    """
    from model.config import TWIN, unknown_options
    if unknown := unknown_options(model.config, TWIN):
        raise RuntimeError(f"the twin on PyTorch does not know {', '.join(unknown)}")
    return Remote("twin.PyTorch", dict(config=dataclasses.asdict(model.config), mode=mode,
                                       weights=model.state_dict(), **training_of(s)))


def jax(model, s, threads):
    """Return a copy of a Transformer in JAX, which trains with these Settings: jax_twin.Jax.

    Raises
    ------
    RuntimeError : the twin has no such model, or no such optimiser.
    """
    return Remote("jax_twin.Jax", dict(config=dataclasses.asdict(model.config), threads=threads,
                                       weights=model.state_dict(), **training_of(s)))


def transformers(path):
    """Return the model of a checkpoint on the library `transformers`: twin.Pretrained.

    Raises
    ------
    ValueError : the library has no class for it, or a library that this needs is not installed.
    """
    from model.convert import checkpoint, hugging_face
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        hugging_face.write(folder, checkpoint.read(path))
        return Remote("twin.Pretrained", dict(path=folder))


def llama_cpp(path, threads):
    """Return the model of a checkpoint in llama.cpp: llama_cpp.LlamaCpp.  A model that came from a
    GGUF file is in the same file again.

    Raises
    ------
    ValueError : llama.cpp has no such model.
    """
    from model.convert import checkpoint, to_gguf
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = os.path.join(folder, "model.gguf")
        to_gguf.write(file, checkpoint.read(path))
        return Remote("llama_cpp.LlamaCpp", dict(path=file, threads=threads))


def training_of(s):
    """Return the training arguments of twin.PyTorch for the Settings of a run."""
    ngram_decay = s.weight_decay if s.ngram_decay is None else s.ngram_decay
    return dict(lr=s.learning_rate, betas=(s.beta1, s.beta2), weight_decay=s.weight_decay,
                max_norm=s.grad_clip or math.inf, muon=s.optimizer == "muon",
                ngram_decay=ngram_decay, equal_rows=s.equal_rows, ahead=s.ahead)


@contextlib.contextmanager
def environment_before_minigrad():
    """Restore the environment variables of the start, except for numbers of threads."""
    now = dict(os.environ)
    for name in now.keys() - ENVIRONMENT.keys() - {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(now)
