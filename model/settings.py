"""The settings of a run, and the checks of what cannot work.

Complete settings by name (--recipe), adapted to the size of the text and the time available.
"""
import dataclasses
import math
import os
import pathlib
import textwrap

import data
from data import Text
from minigrad import compiled
from model.command import Words, as_flags, flag, problems
from model.transformer import Architecture, TransformerConfig, problems_of_heads

RECIPE_NAMES = ("modern", "gpt2")
TOO_HIGH = 0.1      # a learning rate at which training hardly makes progress


@dataclasses.dataclass(frozen=True)
class _First:
    """The settings that --help shows before those of the model."""
    data: Words = flag(("lantern",), "shakespeare, lantern, UTF-8 text files, folders (their .txt "
                                     "and .md files), or patterns in quotes; several are read one "
                                     "after another")
    out_dir: str = flag("out", "folder for ckpt.npz (best), last.npz (to resume from), "
                               "previous.npz (the one before it), log.csv")
    init_from: str = flag("scratch", "scratch; resume, to go on from out_dir/last.npz as it is "
                                     "set; or a checkpoint or the folder of a run, to begin a new "
                                     "run with the weights of its model")
    recipe: str = flag("modern", f"whole settings by name: {', '.join(RECIPE_NAMES)}; other flags "
                                 "change single ones", choices=RECIPE_NAMES)
    minutes: float = flag(None, "of training, after which the run ends; evaluating, compiling and "
                                "saving do not count", above=0)
    max_iters: int = flag(None, "optimiser steps, after which the run ends, without a clock unless "
                                "--minutes is given too", at_least=0)
    batch_size: int = flag(12, "sequences of a batch, B", at_least=1)


@dataclasses.dataclass(frozen=True)
class Settings(Architecture, _First):       # a dataclass has the fields of its last base first
    """All settings of a run; the names are nanoGPT's where it has one."""
    optimizer: str = flag("adamw", "adamw, or muon: that for the matrices of the blocks, AdamW for "
                                   "all else", choices=("adamw", "muon"))
    learning_rate: float = flag(4e-3, "the highest that AdamW gets", at_least=0)
    muon_lr: float = flag(0.02, "the highest that Muon gets; it falls as AdamW's does", at_least=0)
    min_lr: float = flag(None, "what the learning rate falls to", unset="a tenth of it", at_least=0)
    warmup_iters: int = flag(100, "steps over which the learning rate rises", at_least=0)
    lr_decay_iters: int = flag(None, "step at which min_lr is reached", unset="the run's end",
                               at_least=0)
    schedule: str = flag("cosine", "how the learning rate falls: cosine, from the warm-up on, or "
                                   "linear, after a time in which it stays",
                         choices=("cosine", "linear"))
    decay_share: float = flag(0.2, "of the run, over which --schedule linear falls", above=0,
                              at_most=1)
    weight_decay: float = flag(0.1, "of matrices only", at_least=0)
    beta1: float = flag(0.9, "AdamW's memory of the gradient", at_least=0, below=1)
    beta2: float = flag(0.99, "AdamW's memory of its square", at_least=0, below=1)
    grad_clip: float = flag(1.0, "largest norm of the gradient; 0 does not clip", at_least=0,
                            finite=False)
    gradient_accumulation_steps: int = flag(1, "batches whose gradients are averaged for one step",
                                            at_least=1)
    reduce: str = flag("fast", "how ranks add up gradients: fast; or exact, with the same bits for "
                               "every number of ranks that divides batch_size",
                       choices=("fast", "exact"))
    eval_interval: int = flag(200, "steps between evaluations", at_least=1)
    eval_iters: int = flag(20, "batches of an evaluation, spread evenly over the validation split; "
                               "0 takes all of it, as the report at the end does", at_least=0)
    log_interval: int = flag(10, "steps between updates of the progress bar's numbers", at_least=1)
    checkpoint_interval: float = flag(60.0, "seconds between writes of last.npz, which each "
                                            "evaluation writes too; 0 leaves it to those",
                                      at_least=0, finite=False)
    always_save_checkpoint: bool = flag(False, "write ckpt.npz at each evaluation, best or not")
    on_nan: str = flag("stop", "at a loss or gradient that is not finite stop the run, or skip "
                               "the step", choices=("stop", "skip"))
    replay: str = flag(None, "the out_dir/nan.npz of a run that met one: take that step again, and "
                             "show the first op that made a nan or inf; trains nothing")
    seed: int = flag(1337, "of the initial weights, the batches and dropout", at_least=0)
    threads: int = flag(0, "processors to use; 0 takes all that this process may run on, "
                           "or as a rank its share of them",
                        at_least=0)
    profile: int = flag(0, "after so many steps, a table of where their time went "
                           "(50 if no number is given)", alone=50, at_least=0)
    explain: bool = flag(False, "walk through the next step, with numbers, shapes and lines of "
                                "source, and save nothing")

    @property
    def steps(self) -> float:
        """The number of optimiser steps; inf where the clock alone ends the run."""
        return math.inf if self.max_iters is None else self.max_iters

    @property
    def begins_with_model(self) -> bool:
        """Whether the run begins with the weights of a checkpoint."""
        return self.init_from not in ("scratch", "resume")

    def problems(self) -> list[str]:
        """Return the settings that cannot work with any text, one line each, with the remedy."""
        return [*problems(self), *problems_of_threads(self.threads),
                *problems_of_heads(self.n_embd, self.n_head, self.n_kv_head, self.position),
                *self._problems_of_folder()]

    def _problems_of_folder(self):
        """Report an out_dir that cannot be written into."""
        if self.explain:        # --explain writes nothing
            return []
        path = pathlib.Path(self.out_dir)
        try:
            there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        except OSError as error:
            return [f"--out_dir {self.out_dir} cannot be written: {error.strerror}; give another "
                    "folder"]
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
        if self.rotary_base != Settings.rotary_base and self.position != "rotary":
            found.append(f"--rotary_base {self.rotary_base:g} does nothing with --position "
                         f"{self.position}")
        return found

    @property
    def characters(self) -> int:
        """The number of characters in an optimiser step."""
        return self.batch_size * self.block_size * self.gradient_accumulation_steps

    def model_config(self, vocab_size: int) -> TransformerConfig:
        """Return the configuration of the model, from the settings that shape it."""
        return TransformerConfig(vocab_size,
                                 **{name: getattr(self, name) for name in ARCHITECTURE})


def problems_of_threads(wanted: int) -> list[str]:
    """Return a line if this process cannot have so many threads."""
    most, why = compiled.thread_limit()
    return [f"--threads is at most {most} here, not {wanted}: {why}"] if wanted > most else []


# The settings that a resumed run keeps.
ARCHITECTURE = tuple(field.name for field in dataclasses.fields(Architecture))
# What a run that begins with a model has from it: dropout is no part of the weights.
OF_MODEL = tuple(name for name in ARCHITECTURE if name not in ("dropout", "ngram_dropout"))


MINUTES = 3.0
# The passes over a text of a million characters in three minutes.  The more passes a run makes over
# its text, the more dropout it needs against learning the text by heart.
USUAL_PASSES = 3.0
LEAST_PASSES = 0.3          # with fewer passes, no less is dropped
MOST_PASSES = 20.0          # after which a run without an explicit end stops
CHARACTERS_A_MINUTE = 1_000_000     # of training, about, on two laptop processors
LEAST_STEPS = 90            # in those passes; a shorter text gets smaller batches
WARMUP_PART = 4             # the warm-up takes at most a fourth of the steps
EVALUATIONS = 10            # at least, on a short text: its best model may come early
# How much more n-grams are dropped for each doubling of the passes, below USUAL_PASSES and above;
FEWER_NGRAMS, MORE_NGRAMS = 0.12, 0.07
# How much more activations are, for each halving of the text and each quadrupling of the time.
MORE_ACTIVATIONS, MOST_ACTIVATIONS = 0.05, 0.15

MODERN = dict(
    n_layer=4, n_head=4, n_embd=128, block_size=256, batch_size=8, dropout=0.0, bias=False,
    position="rotary", norm="rms", qk_norm=True, activation="relu2", zero_init=True, ngrams=5,
    ngram_rows=32768, ngram_dropout=0.5, optimizer="muon", muon_lr=0.01, learning_rate=4e-3,
    min_lr=0.0, warmup_iters=40, schedule="linear", decay_share=0.7, weight_decay=0.1, beta1=0.9,
    beta2=0.99, grad_clip=1.0, eval_interval=100)
GPT2 = {name: value for name, value in vars(Settings()).items() if name in MODERN}
RECIPES = {"modern": MODERN, "gpt2": GPT2}


def recipe(name: str, characters: int, minutes: float | None = None, max_iters: int | None = None
           ) -> dict[str, object]:
    """Return all settings of a recipe, for a text of that many characters and a run of that length.

    "gpt2" is the same for every text.  "modern" adapts three things.  The block fits the text's
    validation part.  Batches are small enough for LEAST_STEPS in MOST_PASSES.  And the more often
    the text is read, the more is dropped: first n-grams, which are learnt by heart first, with the
    recipe's share at USUAL_PASSES; beyond that activations too, more for a shorter text than for a
    longer run.
    """
    chosen = RECIPES.get(name, MODERN) | dict(minutes=minutes, max_iters=max_iters)
    if name == "gpt2" or not characters:
        return chosen
    if max_iters is not None:
        chosen["warmup_iters"] = min(chosen["warmup_iters"], max(0, max_iters // WARMUP_PART))
    while chosen["block_size"] > 8 and characters // 10 <= chosen["block_size"]:
        chosen["block_size"] //= 2
        chosen["batch_size"] *= 2
    trained_on = 0.9 * characters
    while (chosen["batch_size"] > 1
           and MOST_PASSES * trained_on < LEAST_STEPS * Settings(**chosen).characters):
        chosen["batch_size"] //= 2
    if max_iters is not None and is_short(characters):
        chosen["eval_interval"] = min(chosen["eval_interval"], max(1, max_iters // EVALUATIONS))
    read = min(math.inf if minutes is None else minutes * CHARACTERS_A_MINUTE,
               math.inf if max_iters is None else max_iters * Settings(**chosen).characters,
               MOST_PASSES * trained_on)
    doublings = math.log2(max(LEAST_PASSES, read / trained_on) / USUAL_PASSES)
    more = MORE_NGRAMS if doublings > 0 else FEWER_NGRAMS
    chosen["ngram_dropout"] = round(MODERN["ngram_dropout"] + more * doublings, 2)
    if doublings > 0:
        longer = math.log2(read / (MINUTES * CHARACTERS_A_MINUTE))
        shorter = doublings - longer
        share = MORE_ACTIVATIONS * (shorter + longer / 2)
        chosen["dropout"] = round(min(max(0.0, share), MOST_ACTIVATIONS), 2)
    return chosen


def is_short(characters: int) -> bool:
    """Whether MOST_PASSES over a text of this length end before MINUTES do."""
    return MOST_PASSES * 0.9 * characters < MINUTES * CHARACTERS_A_MINUTE


def completed(given: dict[str, object], characters: int) -> dict[str, object]:
    """Return the settings of a new run on a text: those given, and otherwise its recipe's.  A run
    without an explicit end stops after MINUTES, or after MOST_PASSES passes over a short text."""
    name, minutes = given.get("recipe", Settings.recipe), given.get("minutes")
    max_iters = given.get("max_iters")
    if minutes is max_iters is None:
        minutes = MINUTES
        if name != "gpt2" and characters and is_short(characters):
            of_a_step = Settings(**recipe(name, characters) | given).characters
            max_iters = math.ceil(MOST_PASSES * 0.9 * characters / max(1, of_a_step))
    return recipe(name, characters, minutes, max_iters) | given


def told(s: Settings, characters: int) -> str:
    """Return a run's recipe as flags, and the settings that replace some of it, in lines; and those
    of the model that it begins with, if it does."""
    its = {name: getattr(s, name) for name in OF_MODEL if s.begins_with_model}
    named = recipe(s.recipe, characters, s.minutes, s.max_iters)
    usual = {name: getattr(Settings, name) for name in ARCHITECTURE} | named
    own = {name: getattr(s, name) for name in [*named, *ARCHITECTURE]
           if name not in its and getattr(s, name) != usual[name]}
    lines = wrapped(f"{s.recipe}:", as_flags({name: value for name, value in named.items()
                                              if name not in its}))
    if own:
        lines += wrapped("but for", as_flags(own))
    if its:
        lines += wrapped("and of the model", as_flags(its))
    return f"\n{'':12}".join(lines)


def wrapped(begin: str, flags: list[str]) -> list[str]:
    """Wrap flags into lines, without separating a flag from its value."""
    text = " ".join([begin, *(flag.replace(" ", "\xa0") for flag in flags)])
    return [line.replace("\xa0", " ")
            for line in textwrap.wrap(text, 88, break_long_words=False, break_on_hyphens=False)]
