"""Train a character-level transformer on any text, and say how good it is.

    python train.py                             the built-in plays, three minutes of training
    python train.py --data my_text.txt          a text of your own (UTF-8); or files, or a folder
    python train.py --minutes 10                longer, and better
    python train.py --init_from resume          resume a run that was stopped
    python train.py --init_from out --data my_text.txt --out_dir out_mine
                                                fine-tuning: start from another run's model
    mpiexec -n 4 python train.py                four processes, or machines: docs/ranks.md
    python train.py --explain                   one step, explained from the text to the weights
"""
from model.answers import answering     # before slow imports
from model.command import Parser
from model.interrupts import Interrupts

import math
import sys
from collections.abc import Iterator

import minigrad as mg
from model.beginning import Beginning, prepare
from model.folder import Folder
from model.processes import Ranks
from model.report import (Progress, compile_kernels, describe, describe_complete, describe_stop,
                          print_estimates, report)
from model.run import Evaluation, Run, Step, join, make_optimizer
from model.scoring import prove_causality, yardstick
from model.settings import MINUTES, MODERN, Settings


def steps(run: Run) -> Iterator[Step]:
    """Take the steps of a run to its end; yield each one when it is done."""
    s = run.settings
    model = run.model
    optimizer = run.optimizer
    state = run.state
    parameters = model.parameters()
    while not run.is_over():
        step = Step(state.iteration + 1, before=state.before_step(), ahead=run.ahead())
        with run.measure(step):
            for x, y in run.batches(step):          # ids, targets: (B, T) each
                loss = model.loss(x, y, run.dropout, step.ahead) / s.gradient_accumulation_steps
                loss.backward()                     # adds to p.grad of every parameter p
                step.loss += loss.item()
            step.loss = run.averager.average(step.loss)     # and gradients, over the processes
            step.norm = mg.clip_grad_norm_(parameters, s.grad_clip or math.inf)
            step.taken = step.is_finite()           # else weights and optimiser stay as they are
            if step.taken:
                run.set_learning_rates()
                optimizer.step()
            optimizer.zero_grad()
        state.note_step(step.loss, step.seconds, step.taken)
        yield step


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser("python train.py", __doc__, Settings(**MODERN, minutes=MINUTES))
    with join("train.py") as ranks:
        flags, mistakes = parser.read(argv)
        with Folder(flags.get("out_dir", Settings.out_dir)) as folder:
            describe_saved = None if flags.get("explain") else folder.describe_saved
            with answering("train.py", describe_saved):
                beginning = prepare(
                    flags,
                    mistakes,
                    parser,
                    folder,
                    ranks)
                train(beginning, folder, ranks)


def train(beginning: Beginning, folder: Folder, ranks: Ranks) -> None:
    """Train a model on a text: from random weights, from the weights of a checkpoint, or from where
    a run was stopped."""
    s = beginning.settings
    text = beginning.text
    model = beginning.make_model()
    optimizer = make_optimizer(model, s, ranks)
    run = Run(
        s,
        text,
        model,
        optimizer,
        folder=folder,
        resumed=beginning.resumed,
        ranks=ranks)
    if run.is_complete():
        run.begin()
        print(describe_complete(run))
        return
    counted = yardstick(text.train, text.val, text.tokenizer.vocab_size)
    describe(run, counted)
    compile_kernels(s)
    if s.explain:
        from model.explain.step import explain
        explain(run, steps(run), counted)
        return
    print_estimates(run)
    prove_causality(model, text.tokenizer.vocab_size, s.block_size)
    run.begin()

    with Progress(run, counted) as progress, Interrupts() as interrupts:
        if run.is_time_to_evaluate():
            evaluate_and_save(run, progress)
        for step in steps(run):
            if not step.taken:
                skip_or_end(run, step)
            if ranks.any(interrupts.received):    # a later one is for the next step
                run.save_last()
                break
            progress.show(step)
            if run.is_time_to_evaluate():
                evaluate_and_save(run, progress)
            elif run.is_time_to_save(step):
                run.save_last()
        stop = ranks.any(interrupts.received)
    if stop:
        # Not on standard output, whose reader may have ended
        print(f"\n{describe_stop(run)}", file=sys.stderr)
        sys.exit(130)
    report(run, counted, progress.describe_slowness())


def evaluate_and_save(run: Run, progress: Progress) -> None:
    """Evaluate a run, save it, and show its losses."""
    evaluation = run.evaluate()
    if not evaluation.is_finite():
        skip_or_end(run, evaluation)
    train_loss = run.save_evaluation(evaluation.loss)
    progress.show_evaluation(train_loss, evaluation.loss)


def skip_or_end(run: Run, step: Step | Evaluation) -> None:
    """Skip a step that is not finite, or end the run with it or with such an evaluation.  Explain
    the first of those that are skipped, and the one with which the run ends.

    Raises
    ------
    ValueError : the run ends with it.
    """
    from model.replay.nan import explain_end, explain_skipped
    if run.ends_with(step):
        raise ValueError(explain_end(run, step))
    if run.state.skipped == 1:
        explain_skipped(run, step)


if __name__ == "__main__":
    main()
