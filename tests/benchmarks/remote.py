"""Another library's side in a process of its own, where nothing of minigrad is loaded: that would
change how memory and threads are used there, to its advantage or not."""
import contextlib
import dataclasses
import importlib.util
import math
import multiprocessing
import os
import tempfile
from collections.abc import Iterator

import numpy as np

from model import Transformer
from model.convert import checkpoint, hugging_face
from model.settings import Settings
from tests.benchmarks.sizes import ENVIRONMENT, MAX_NORM, OPTIMIZER
from tests.benchmarks.timing import Seconds

ABSENT = "PyTorch: absent, because it is not installed"
PATIENCE = 5        # seconds that a process has to end by itself


def has_pytorch() -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec("torch") is not None


class Remote:
    """A side in a process of its own; to be closed.

    Parameters
    ----------
    where : the class of that side, such as twin.PyTorch.
    settings : what it is made from.
    """

    def __init__(self, where: str, settings: dict) -> None:
        from tests.benchmarks import serving
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serving.serve, args=(theirs, where, settings),
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

    def generate(self, ids: np.ndarray, count: int) -> Seconds:
        """How long it takes to draw `count` ids after ids (B, T)."""
        return Seconds(self._ask("generate", ids, count)[1])

    def peak_memory(self) -> float:
        """The most resident memory of that process until now, MB."""
        return self._ask("peak_memory")[0]

    def close(self) -> None:
        """End the process."""
        self._pipe.close()              # at which it ends, unless it is at work
        self._process.join(PATIENCE)
        self._process.kill()
        self._process.join()


class PyTorch(Remote):
    """A copy of a model on PyTorch.

    Parameters
    ----------
    training : what else twin.PyTorch takes; by default `optimizer`, as peers.Minigrad has it.
    """

    def __init__(self, model: Transformer, mode: str = "eager", **training) -> None:
        super().__init__("twin.PyTorch", dict(
            config=dataclasses.asdict(model.config), mode=mode, weights=model.state_dict(),
            optimizer=OPTIMIZER | {"max_norm": MAX_NORM}) | training)

    def loss(self, batch: np.ndarray) -> float:
        """Train on one batch, (2, B, T); returns the loss before."""
        return self._ask("step", *batch)[0]

    def step(self, batch: np.ndarray) -> Seconds:
        """How long that takes, as measured over there."""
        return Seconds(self._ask("step", *batch)[1])

    def step_at(self, batch: np.ndarray, *rates: float) -> tuple[float, float]:
        """The same at AdamW's rate and Muon's; returns the loss before, and seconds."""
        return self._ask("step", *batch, *rates)

    def evaluate(self, x: np.ndarray, y: np.ndarray, batch_size: int) -> float:
        """Mean loss over windows of a text, (N, T) each."""
        return self._ask("evaluate", x, y, batch_size)[0]

    def keep(self) -> None:
        """Remember the weights as the best."""
        self._ask("keep")

    def go_back(self) -> None:
        """To the best weights."""
        self._ask("go_back")


class Transformers(Remote):
    """The model of a checkpoint on the library `transformers`.

    Raises
    ------
    ValueError : the library has no class for it, or needs another one that is not installed.
    """

    def __init__(self, path: os.PathLike) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            hugging_face.write(folder, checkpoint.read(path))
            super().__init__("hugging.Pretrained", dict(path=folder))

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """Of the next token, (B, T) -> (B, V)."""
        return self._ask("logits", ids)[0]

    def read(self, ids: np.ndarray) -> Seconds:
        """How long it takes to compute them."""
        return Seconds(self._ask("logits", ids)[1])


def training_of(s: Settings) -> dict[str, object]:
    """How a run with these settings trains, as twin.PyTorch takes it."""
    return dict(optimizer=dict(lr=s.learning_rate, betas=(s.beta1, s.beta2),
                               weight_decay=s.weight_decay, max_norm=s.grad_clip or math.inf),
                muon=s.optimizer == "muon")


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
