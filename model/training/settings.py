"""The settings of a run, and the checks of what cannot work."""
import dataclasses
import difflib
import math
import os
import pathlib

import data
from data import Text
from minigrad.kernels.build import threads
from minigrad.machine import memory_limit
from model.console.flags import flag, too_small
from model.console.words import any_of, scaled
from model.training.sizes import training_bytes
from model.transformer import ACTIVATIONS, NORMS, POSITIONS, TransformerConfig

RECIPES = ("modern", "gpt2")
OPTIMIZERS = ("adamw", "muon")
SCHEDULES = ("cosine", "linear")
TOO_HIGH = 0.1      # a learning rate at which training hardly makes progress


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings of a run; the names are nanoGPT's where it has one."""
    data: str = flag("lantern", "shakespeare, lantern, or the path of a UTF-8 text file")
    out_dir: str = flag("out", "folder for ckpt.npz (best), last.npz (to resume from), "
                               "previous.npz (the one before it), log.csv")
    init_from: str = flag("scratch", "scratch, or resume: go on from out_dir/last.npz as it is set")
    recipe: str = flag("modern", f"whole settings by name: {', '.join(RECIPES)}; other flags "
                                 "change single ones")
    minutes: float = flag(None, "of training, after which the run ends; evaluating, compiling and "
                                "saving do not count")
    max_iters: int = flag(None, "optimiser steps, after which the run ends, without a clock unless "
                                "--minutes is given too")
    batch_size: int = flag(12, "sequences of a batch, B")
    block_size: int = flag(64, "characters of a sequence, T")
    n_layer: int = flag(4, "blocks of attention and MLP")
    n_head: int = flag(4, "attention heads, H")
    n_embd: int = flag(128, "channels, C")
    dropout: float = flag(0.0, "share of activations dropped in training")
    bias: bool = flag(False, "biases in linear layers and norms")
    n_kv_head: int = flag(None, "heads of keys and values, each for several of the queries' "
                                "(default: n_head; 1 is multi-query attention)")
    position: str = flag("learned", f"what tells positions apart: {', '.join(POSITIONS)}")
    norm: str = flag("layer", f"before each part of a block and at the end: {', '.join(NORMS)}; "
                              "rms learns nothing")
    qk_norm: bool = flag(False, "queries and keys of one size, head by head")
    activation: str = flag("gelu", f"of the MLPs: {', '.join(ACTIVATIONS)}")
    zero_init: bool = flag(False, "each block begins by passing on what it reads")
    ngrams: int = flag(1, "n-grams of up to so many characters have embeddings too; 1 for none")
    ngram_rows: int = flag(8192, "rows of the table that they share")
    ngram_dropout: float = flag(0.0, "share of n-grams left out in training")
    optimizer: str = flag("adamw", "adamw, or muon: that for the matrices of the blocks, AdamW for "
                                   "all else")
    learning_rate: float = flag(4e-3, "the highest that AdamW gets")
    muon_lr: float = flag(0.02, "the highest that Muon gets; it falls as AdamW's does")
    min_lr: float = flag(None, "what the learning rate falls to (default: a tenth of it)")
    warmup_iters: int = flag(100, "steps over which the learning rate rises")
    lr_decay_iters: int = flag(None, "step at which min_lr is reached (default: the run's end)")
    schedule: str = flag("cosine", "how the learning rate falls: cosine, from the warm-up on, or "
                                   "linear, after a time in which it stays")
    decay_share: float = flag(0.2, "of the run, over which --schedule linear falls")
    weight_decay: float = flag(0.1, "of matrices only")
    beta1: float = flag(0.9, "AdamW's memory of the gradient")
    beta2: float = flag(0.99, "AdamW's memory of its square")
    grad_clip: float = flag(1.0, "largest norm of the gradient; 0 does not clip")
    gradient_accumulation_steps: int = flag(1, "batches whose gradients are averaged for one step")
    eval_interval: int = flag(200, "steps between evaluations")
    eval_iters: int = flag(20, "batches of an evaluation, spread evenly over the validation split; "
                               "0 takes all of it, as the report at the end does")
    log_interval: int = flag(10, "steps between updates of the progress bar's numbers")
    checkpoint_interval: float = flag(60.0, "seconds between writes of last.npz, which each "
                                            "evaluation writes too; 0 leaves it to those")
    always_save_checkpoint: bool = flag(False, "write ckpt.npz at each evaluation, best or not")
    on_nan: str = flag("stop", "at a loss or gradient that is not finite stop the run, or skip "
                               "the step")
    replay: str = flag(None, "the out_dir/nan.npz of a run that met one: take that step again, and "
                             "show the first op that made a nan or inf; trains nothing")
    seed: int = flag(1337, "of the initial weights, the batches and dropout")
    threads: int = flag(0, "processors to use; 0 takes all that this process may run on")
    profile: int = flag(0, "after so many steps, a table of where their time went, by op "
                           "(50 if no number is given)", alone=50)
    explain: bool = flag(False, "walk through the next step, with numbers, shapes and lines of "
                                "source, and save nothing")

    @property
    def steps(self) -> float:
        """The number of optimiser steps; inf where the clock alone ends the run."""
        return math.inf if self.max_iters is None else self.max_iters

    def problems(self) -> list[str]:
        """Return the settings that cannot work with any text, one line each, with the remedy."""
        found = too_small(self, max_iters=0, batch_size=1, block_size=1, n_layer=1, n_head=1,
                          n_embd=1, learning_rate=0, muon_lr=0, weight_decay=0, warmup_iters=0,
                          eval_interval=1, eval_iters=0, log_interval=1,
                          gradient_accumulation_steps=1, grad_clip=0, checkpoint_interval=0, seed=0,
                          threads=0, profile=0, n_kv_head=1, min_lr=0, lr_decay_iters=0,
                          ngrams=1, ngram_rows=1)
        found += [f"--{name} is a finite number, not {value}" for name, value in vars(self).items()
                  if value == math.inf and name not in ("grad_clip", "checkpoint_interval")]
        found += [f"--{name} is at least 0 and below 1, not {getattr(self, name)}"
                  for name in ("beta1", "beta2", "dropout", "ngram_dropout")
                  if not 0 <= getattr(self, name) < 1]
        found += [f"--{name} is above 0{most}, not {value}"
                  for name, most in (("minutes", ""), ("decay_share", " and at most 1"))
                  if (value := getattr(self, name)) is not None
                  and not 0 < value <= (1 if most else math.inf)]
        for name, known in (("recipe", RECIPES), ("init_from", ("scratch", "resume")),
                            ("on_nan", ("stop", "skip")), ("position", POSITIONS), ("norm", NORMS),
                            ("activation", ACTIVATIONS), ("optimizer", OPTIMIZERS),
                            ("schedule", SCHEDULES)):
            if (value := getattr(self, name)) not in known:
                near = difflib.get_close_matches(value, known, n=1)
                found.append(f"--{name} is {any_of(known)}, not {value}"
                             + (f"; did you mean {near[0]}?" if near else ""))
        most, why = threads.limit()
        if self.threads > most:
            found.append(f"--threads is at most {most} here, not {self.threads}: {why}")
        return found + self._problems_of_heads() + self._problems_of_folder()

    def _problems_of_heads(self):
        """Report channels that do not split into heads, and heads that cannot share."""
        C, H, H_kv = self.n_embd, self.n_head, self.n_kv_head
        if min(C, H) < 1:
            return []
        found = []
        of = 2 * H if self.position == "rotary" else H
        if C % of:
            below, above = C - C % of, C + -C % of
            why = ("heads" if C % H else "heads of an even number of channels, which --position "
                   "rotary needs")
            found.append(f"--n_embd {C} does not split into --n_head {H} {why}; take --n_embd "
                         + (f"{below} or {above}" if below else f"{above}"))
        if H_kv and H_kv >= 1 and H % H_kv:
            fits = [str(n) for n in range(1, min(H, 1000) + 1) if H % n == 0]
            found.append(f"--n_head {H} heads cannot share --n_kv_head {H_kv} evenly; take "
                         f"--n_kv_head {any_of(fits)}")
        return found

    def _problems_of_folder(self):
        """Report an out_dir that cannot be written into."""
        if self.explain:        # --explain writes nothing
            return []
        if not self.out_dir:
            return ["--out_dir is empty; give a folder"]
        path = pathlib.Path(self.out_dir)
        try:
            there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        except OSError as error:
            return [f"--out_dir {self.out_dir} cannot be written: {error.strerror}; "
                    + data.remedy(error, "give another folder")]
        if not there.is_dir():
            return [f"--out_dir {self.out_dir}: {there} is a file; give a folder"]
        if not os.access(there, os.W_OK | os.X_OK):
            return [f"--out_dir {self.out_dir} cannot be written: {there} does not allow it; give "
                    "another folder, or have its rights changed"]
        return []

    def problems_with(self, text: Text) -> list[str]:
        """Return the settings that cannot work with this text, one line each, with the remedy."""
        try:
            text.check(self.block_size)
        except data.TextError as error:
            return [str(error)]
        try:
            config = self.model_config(text.tokenizer.vocab_size)
        except ValueError:          # `problems` reports it
            return []
        return self._problems_of_memory(config, memory_limit())

    def _problems_of_memory(self, config, limit):
        """Report a model, or a training step, that needs more bytes than the machine has."""
        model, step = training_bytes(config, 0), training_bytes(config, self.batch_size)
        # `step` has the first batch; the others store ids and targets, 16 bytes a token.
        ids = 16 * (self.characters - self.batch_size * self.block_size)
        there = f"of memory, and there are {scaled(limit, 'B')}; take "
        if model > limit:
            return [f"a model of --n_layer {self.n_layer} and --n_embd {self.n_embd} needs "
                    f"{scaled(model, 'B')} {there}less of one of them"]
        if step > limit:
            fits = int((limit - model) // (training_bytes(config, 1) - model))
            return [f"--batch_size {self.batch_size} of --block_size {self.block_size} needs some "
                    f"{scaled(step, 'B')} {there}"
                    + (f"--batch_size {fits} or less" if fits else "a smaller --block_size")]
        if step + ids > limit:
            return [f"--gradient_accumulation_steps {self.gradient_accumulation_steps} batches "
                    f"need {scaled(ids, 'B')} {there}fewer"]
        return []

    def warnings(self) -> list[str]:
        """Return the settings that work but are probably a mistake, one line each."""
        found = []
        if self.learning_rate == 0:
            found.append("at --learning_rate 0 nothing is learned")
        if self.learning_rate >= TOO_HIGH:
            found.append(f"--learning_rate {self.learning_rate:g} is far above what trains such a "
                         f"model; {Settings.learning_rate:g} is usual")
        if self.min_lr is not None and self.min_lr > self.learning_rate:
            found.append(f"--min_lr {self.min_lr:g} is above --learning_rate "
                         f"{self.learning_rate:g}, so the rate rises at the end")
        return found

    @property
    def characters(self) -> int:
        """The number of characters in an optimiser step."""
        return self.batch_size * self.block_size * self.gradient_accumulation_steps

    def model_config(self, vocab_size: int) -> TransformerConfig:
        """Return the configuration of the model, from the settings that shape it."""
        return TransformerConfig(vocab_size,
                                 **{name: getattr(self, name) for name in ARCHITECTURE})


# The settings that a resumed run keeps.
ARCHITECTURE = tuple(field.name for field in dataclasses.fields(TransformerConfig)
                     if field.name != "vocab_size")
