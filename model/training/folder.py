"""The folder of a run: what is in it, what is in the way, and how to go on from it."""
import contextlib
import itertools
import os
import pathlib
import shlex
from collections.abc import Sequence

from model.processes import Ranks
from model.storage.checkpoint import (BEST, DAMAGED, LAST, PREVIOUS, Checkpoint, CheckpointError,
                                      load_checkpoint, load_last, read_by_first)
from model.storage.files import claimed

LOG, NAN = "log.csv", "nan.npz"


class Folder:
    """A folder into which one run at a time writes.  Leaving the context releases it.  Of several
    ranks, the first reads and claims it for all."""

    def __init__(self, path: str | os.PathLike, ranks: Ranks = Ranks()) -> None:
        self.path, self.ranks = pathlib.Path(os.path.expanduser(path)), ranks
        self._held = contextlib.ExitStack()

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *error) -> None:
        self._held.close()

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name

    def __str__(self) -> str:
        return str(self.path)

    def begin(self) -> pathlib.Path | None:
        """Make the folder, claim it, and move an earlier run's files to a folder of their own
        within it: it may be the only one that is writable.  Return that folder, if there is one."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._held.enter_context(claimed(self.path))
        files = [self / name for name in (LAST, PREVIOUS, DAMAGED, BEST, LOG, NAN)]
        files = [file for file in files if file.exists()]
        if not files:
            return None
        kept = next(folder for n in itertools.count(1)
                    if not (folder := self / f"earlier.{n}").exists())
        kept.mkdir()
        for file in files:
            os.replace(file, kept / file.name)
        print(f"{self} held an earlier run, which is now in {kept}\n")
        return kept

    def resume(self, only_look: bool) -> Checkpoint:
        """Return the checkpoint to resume from.  Claim the folder, unless the run only looks."""
        return read_by_first(self.ranks, lambda: self._resume(only_look))

    def _resume(self, only_look):
        if self.path.is_dir() and not only_look:
            self._held.enter_context(claimed(self.path))
        resumed, warning = load_last(self.path)
        if (not resumed.optimizer or not {"settings", "text"} <= resumed.training.keys()
                or "iteration" not in resumed.training.get("state", {})):
            raise ValueError(f"{self / LAST} holds a model, but no run to go on with; train.py "
                             "writes a last.npz that does")
        if warning:
            print(f"warning     {warning}, at step {resumed.training['state']['iteration']:,}")
            if self.holds_run() and not only_look:      # or it would become previous.npz
                os.replace(self / LAST, self / DAMAGED)
        return resumed

    def best(self) -> Checkpoint:
        """Return the run's best model."""
        return read_by_first(self.ranks, lambda: load_checkpoint(self / BEST))

    def holds_run(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return os.path.exists(self / LAST)

    def kept_step(self) -> int | None:
        """Return the step after which a run can be resumed, if there is one."""
        with contextlib.suppress(CheckpointError):
            return load_last(self.path)[0].training["state"]["iteration"]

    def best_of(self, run: Checkpoint) -> float:
        """Return the lowest validation loss of the run's best model.

        It may be of a later step than the one from which the run continues, if that was not saved.

        Raises
        ------
        CheckpointError : the best model is damaged, or of another run, or not there.
        """
        path = self / BEST
        try:
            best = load_checkpoint(path)
            if _origin(best) == _origin(run):
                return best.training["state"]["best"]
            what = "of another run"
        except (CheckpointError, KeyError):
            what = "damaged" if path.exists() else "not there"
        raise CheckpointError(f"{path} is {what}")

    def resume_command(self, texts: Sequence[str] = ()) -> str:
        """Return the command that resumes the run.  A text that was piped in is to be given in a
        file."""
        piped = any(os.path.abspath(text).startswith(("/dev/", "/proc/")) for text in texts)
        return (f"python train.py --init_from resume --out_dir {shlex.quote(str(self))}"
                + " --data FILE" * piped)

    def replay_command(self) -> str:
        """Return the command that shows again what was not finite."""
        return f"python train.py --replay {shlex.quote(str(self / NAN))}"


def _origin(checkpoint):
    """Return what all checkpoints of a run have in common."""
    training = checkpoint.training
    return (training["text"], training["settings"].get("seed"), checkpoint.tokenizer.vocabulary,
            checkpoint.model.config)
