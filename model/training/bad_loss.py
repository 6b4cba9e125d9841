"""What a run does when a loss is nan or inf: it names the op that made it, then stops or skips."""
import dataclasses
import sys

from tqdm import tqdm

from model.storage.checkpoint import BEST
from model.training.folder import NAN
from model.training.nan import Case, advice
from model.training.run import Run, Step

SKIPS_IN_A_ROW = 20     # after this many the run ends


def stop_or_skip(run: Run, step: Step) -> None:
    """Let a step that was not taken be skipped, or end the run, as --on_nan says.

    Raises
    ------
    ValueError : the run ends.
    """
    skips = run.settings.on_nan == "skip"
    first, gives_up = run.state.skipped == 1, run.state.skipped_in_row == SKIPS_IN_A_ROW
    if skips and not first and not gives_up:
        return
    case = Case("training", step.number, step.loss, step.norm, step.batches)
    remedy = _explained(run, case, step.before, kept=first or not skips)
    if gives_up or not skips:
        why = (f"{SKIPS_IN_A_ROW} steps in a row were to be skipped; {case}" if gives_up
               else str(case))
        raise ValueError(_stopped(run, why, remedy))
    tqdm.write(f"step {step.number:,} is skipped, and those like it will be: weights and "
               f"optimiser stay as they were.  {remedy}.  To see this again:\n"
               f"    {run.folder.replay_command()}\n", sys.stderr)


def stop_at_evaluation(run: Run) -> None:
    """End a run whose validation loss is not finite.

    Raises
    ------
    ValueError : always.
    """
    s = run.settings
    windows = run.text.windows(s.block_size, s.eval_iters * s.batch_size)
    case = Case.of_validation(run.state.iteration, run.model, *windows, s.batch_size)
    remedy = _explained(run, case, run.state.saved(), kept=True)
    raise ValueError(_stopped(run, str(case), remedy))


def _explained(run, case, before, kept):
    """Take the case again from the state before it, print the op that made it, and write it to
    nan.npz if it is to be kept; return what to do about it."""
    now = run.state.saved()
    run.state.restore(before)
    _, finding = case.again(run.model, run.state.dropout)
    tqdm.write(f"\n{case}\n{finding or '   taken again, all of it is finite'}\n", sys.stderr)
    if kept:
        run.save(NAN, {"nan": case.saved()}, optimizer=run.optimizer)
    run.state.restore(now)
    return advice(finding, dataclasses.asdict(run.settings))


def _stopped(run, why, remedy):
    """Return why a run ends, what is kept, and what to do."""
    kept, folder = "nothing had been saved yet", run.folder
    if (step := folder.kept_step()) is not None:
        kept = (f"the best model so far is in {folder / BEST}, and {folder.resume_command()} goes "
                f"on after step {step:,}, with other settings if you give them")
    return (f"{why}, so the run ends; the op that made it is named above, and again by "
            f"{folder.replay_command()}.  {remedy}; {kept}")
