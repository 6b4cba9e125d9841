"""PyTorch's side in a process of its own, where nothing of minigrad is loaded: that would change
how PyTorch's memory and threads are used, to its advantage or not."""
import contextlib
import importlib.util
import multiprocessing
import os
from collections.abc import Iterator

import numpy as np

from model import Transformer
from tests.benchmarks.peers import config_of
from tests.benchmarks.sizes import ENVIRONMENT, Size
from tests.benchmarks.timing import Seconds

ABSENT = "PyTorch: absent, because it is not installed"


def has_pytorch() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec("torch") is not None


class PyTorch:
    """A model on PyTorch, with the weights that minigrad's begins with; to be closed."""

    def __init__(self, size: Size, mode: str = "eager") -> None:
        from tests.benchmarks import serving
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        weights = Transformer(config_of(size)).state_dict()
        self._process = context.Process(target=serving.serve, args=(theirs, size, mode, weights),
                                        daemon=True)
        with environment_before_minigrad():
            self._process.start()
        theirs.close()
        self._ask("ready")

    def _ask(self, what, *arguments):
        try:
            self._pipe.send((what, arguments))
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError):
            raise RuntimeError("its process ended") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def loss(self, batch: np.ndarray) -> float:
        """Train on one batch, (2, B, T); returns the loss before."""
        return self._ask("step", *batch)[0]

    def step(self, batch: np.ndarray) -> Seconds:
        """How long that takes, as measured over there."""
        return Seconds(self._ask("step", *batch)[1])

    def generate(self, ids: np.ndarray, count: int) -> Seconds:
        """How long it takes to draw `count` characters after ids (B, T)."""
        return Seconds(self._ask("generate", ids, count)[1])

    def peak_memory(self) -> float:
        """The most resident memory of that process until now, MB."""
        return self._ask("peak_memory")[0]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def environment_before_minigrad() -> Iterator[None]:
    """The environment variables as they were when this program began, and the program's own."""
    now = dict(os.environ)
    for name in now.keys() - ENVIRONMENT.keys() - {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(now)
