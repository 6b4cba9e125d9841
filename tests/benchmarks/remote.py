"""Another library in a process of its own.  Nothing of minigrad is loaded there, because minigrad
changes how memory and threads are used."""
import contextlib
import dataclasses
import importlib.util
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from tests.benchmarks.sizes import ENVIRONMENT
from tests.benchmarks.timing import Seconds

ABSENT = "PyTorch: absent, because it is not installed"
PATIENCE = 5        # seconds in which a process may end by itself


def has_pytorch() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def serve(pipe: Connection, name: str, settings: dict) -> None:
    """Make an object of the class `name` in twin.py, and answer calls of its methods: (method,
    arguments) with (result, seconds), or with a string if something went wrong.  The method "new"
    makes the object."""
    side = None
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            method, arguments = pipe.recv()
            try:
                started = time.perf_counter()
                if method == "new":
                    twins = importlib.import_module("tests.benchmarks.twin")
                    side, result = getattr(twins, name)(**settings), None
                else:
                    result = getattr(side, method)(*arguments)
                pipe.send((result, time.perf_counter() - started))
            except Exception as error:      # a compiler has many ways to fail
                pipe.send((str(error).strip() or type(error).__name__).splitlines()[0])


class Remote:
    """An object in a process of its own; it must be closed.

    Parameters
    ----------
    name : of a class in twin.py.
    settings : the arguments of that class.
    """

    def __init__(self, name: str, settings: dict) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, name, settings), daemon=True)
        with environment_before_minigrad():
            self._process.start()
        theirs.close()
        self.call("new")

    def call(self, method: str, *arguments: Any) -> Any:
        """Return what a method returns."""
        return self.ask(method, *arguments)[0]

    def time(self, method: str, *arguments: Any) -> Seconds:
        """Return the seconds of a method."""
        return Seconds(self.ask(method, *arguments)[1])

    def ask(self, method: str, *arguments: Any) -> tuple[Any, float]:
        """Return what a method returns, and the seconds that it takes over there."""
        try:
            self._pipe.send((method, arguments))
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError):
            raise RuntimeError("its process ended") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        self._pipe.close()              # ends it, unless it is busy
        self._process.join(PATIENCE)
        self._process.kill()
        self._process.join()


def pytorch(model: Any, s: Any, mode: str = "eager") -> Remote:
    """Return a copy of a Transformer on PyTorch, which trains with these Settings: twin.PyTorch."""
    return Remote("PyTorch", dict(config=dataclasses.asdict(model.config), mode=mode,
                                  weights=model.state_dict(), **training_of(s)))


def transformers(path: os.PathLike) -> Remote:
    """Return the model of a checkpoint on the library `transformers`: twin.Pretrained.

    Raises
    ------
    ValueError : the library has no class for it, or a library that this needs is not installed.
    """
    from model.convert import checkpoint, hugging_face
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        hugging_face.write(folder, checkpoint.read(path))
        return Remote("Pretrained", dict(path=folder))


def training_of(s: Any) -> dict[str, object]:
    """Return the training arguments of twin.PyTorch for the Settings of a run."""
    ngram_decay = s.weight_decay if s.ngram_decay is None else s.ngram_decay
    return dict(optimizer=dict(lr=s.learning_rate, betas=(s.beta1, s.beta2),
                               weight_decay=s.weight_decay, max_norm=s.grad_clip or math.inf),
                muon=s.optimizer == "muon", ngram_decay=ngram_decay)


@contextlib.contextmanager
def environment_before_minigrad() -> Iterator[None]:
    """Restore the environment variables of the start, except for numbers of threads."""
    now = dict(os.environ)
    for name in now.keys() - ENVIRONMENT.keys() - {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(now)
