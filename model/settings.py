"""The settings of a training run: the table of all flags, two recipes, and how both are combined.

A run begins in one of three ways, each with a pure function that makes its settings of the flags:
`resolve_from_scratch`, `resolve_resumed`, `resolve_fine_tuned`.
"""
import dataclasses
import math
import textwrap

from minigrad import compiled
from minigrad.words import shown
from model.config import (HEADS, TRAINING, ImportedOptions, ModelOptions, TransformerConfig,
                          head_problems)
from model.options import Values, Words, as_flags, flag, option_names, problems

TOO_HIGH = 0.1      # a learning rate at which training hardly makes progress
MUON_TOO_HIGH = 1.0     # and Muon's
MODEL = option_names(ModelOptions)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The text and the run."""
    data: Words = flag(("lantern",), "lantern, shakespeare, UTF-8 text files, folders (their .txt "
                                     "and .md files), or patterns in quotes; several are joined")
    out_dir: str = flag("out", "folder for ckpt.npz (best), last.npz (to resume from), "
                               "previous.npz (the one before it), log.csv")
    init_from: str = flag("scratch", "scratch; resume: continue the run in out_dir; or a "
                                     "checkpoint or the folder of a run: fine-tune its model, at "
                                     "three tenths of the learning rates of recipe modern")
    recipe: str = flag("modern", "default settings by name; other flags change single ones",
                       choices=("modern", "gpt2"))
    minutes: float = flag(None, "of training, after which the run ends; evaluating, compiling and "
                                "saving do not count", above=0)
    max_iters: int = flag(None, "optimiser steps after which the run ends; without --minutes there "
                                "is no clock then", at_least=0)
    seed: int = flag(1337, "of the initial weights, the batches and dropout", at_least=0)
    threads: int = flag(0, "processors to use; 0 takes all that this process, or its share of the "
                           "ranks, may run on", at_least=0)


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """Training."""
    batch_size: int = flag(12, "sequences of a batch, B", at_least=1)
    windows: str = flag("random", "sequences of a batch: random ones start anywhere; shuffled ones "
                                  "lie side by side, so each character is read once a pass",
                        choices=("random", "shuffled"))
    gradient_accumulation_steps: int = flag(1, "batches averaged for one step", at_least=1)
    ahead: int = flag(
        0,
        "characters after the next one that a run predicts too in its first half, each by output "
        "weights of its own; if it is not given, none on a short text and in fine-tuning",
        at_least=0)
    optimizer: str = flag("adamw", "adamw; or muon, for the matrices of the blocks, with AdamW for "
                                   "all other parameters", choices=("adamw", "muon"))
    learning_rate: float = flag(4e-3, "AdamW's highest", at_least=0)
    muon_lr: float = flag(0.02, "Muon's highest; it falls as AdamW's does", at_least=0)
    equal_rows: bool = flag(False, "Muon gives the rows of each matrix's step the same length")
    min_lr: float = flag(
        None,
        "what the learning rate falls to",
        unset="a tenth of it",
        at_least=0)
    warmup_iters: int = flag(100, "steps over which the learning rate rises", at_least=0)
    lr_decay_iters: int = flag(
        None,
        "step of reaching min_lr",
        unset="the run's end",
        at_least=0)
    schedule: str = flag("cosine", "learning-rate schedule: cosine falls from the warm-up on; "
                                   "linear is constant, then falls", choices=("cosine", "linear"))
    decay_share: float = flag(
        0.2,
        "of the run, in which linear falls",
        above=0,
        at_most=1)
    weight_decay: float = flag(0.1, "of matrices only", at_least=0)
    ngram_decay: float = flag(
        None,
        "weight decay of the n-gram table",
        unset="weight_decay",
        at_least=0)
    beta1: float = flag(
        0.9,
        "AdamW's decay of the mean gradient",
        at_least=0,
        below=1)
    beta2: float = flag(
        0.99,
        "AdamW's decay of the mean squared gradient",
        at_least=0,
        below=1)
    grad_clip: float = flag(
        1.0,
        "largest gradient norm; 0: any",
        at_least=0,
        finite=False)


@dataclasses.dataclass(frozen=True)
class AdapterOptions:
    """An adapter beside a model that stays as it is (LoRA), with --init_from."""
    lora: int = flag(None, "rank of the pairs of small matrices that are trained, such as 8",
                     unset="all weights are trained", at_least=1)
    lora_alpha: float = flag(None, "what a pair adds is multiplied by alpha / rank",
                             unset="twice the rank", above=0)
    lora_layers: str = flag(None, "the layers with pairs, of qkv,out,gate,up,down",
                            unset="all of them that there are")


@dataclasses.dataclass(frozen=True)
class SavingOptions:
    """Saving and looking."""
    eval_interval: int = flag(200, "steps between evaluations; in a short run on a short text "
                                   "fewer, but of a large model that is fine-tuned at least 25",
                              at_least=1)
    eval_iters: int = flag(20, "batches of an evaluation, spread evenly over the validation split; "
                               "0 takes all of it, as the last report does", at_least=0)
    checkpoint_interval: float = flag(
        None,
        "seconds between writes of last.npz, at evaluations too; 0: at each evaluation, and only "
        "then",
        unset="60, and at each evaluation",
        at_least=0,
        finite=False)
    always_save_checkpoint: bool = flag(False, "write ckpt.npz at each evaluation, best or not")
    page: bool = flag(False, "write run.html into out_dir at each evaluation, with the losses "
                             "drawn; an open page shows the next one by itself")
    on_nan: str = flag("stop", "at a loss or gradient that is not finite: stop the run, or skip "
                               "the step", choices=("stop", "skip"))
    profile: int = flag(
        0,
        "after so many steps, print where their time went (50 if no number is "
        "given)",
        alone=50,
        at_least=0)
    explain: bool = flag(False, "walk through the next step, with numbers, shapes and lines of "
                                "source, and save nothing")


@dataclasses.dataclass(frozen=True)
class Settings(SavingOptions, AdapterOptions, TrainingOptions, ModelOptions, RunOptions):
    """All settings of a run, in five tables; the names are nanoGPT's where it has one."""

    @property
    def steps(self) -> float:
        """The number of optimiser steps; inf where the clock alone ends the run."""
        return math.inf if self.max_iters is None else self.max_iters

    @property
    def characters(self) -> int:
        """The number of characters, or tokens, in an optimiser step."""
        return self.batch_size * self.block_size * self.gradient_accumulation_steps

    def model_config(
            self,
            vocab_size: int,
            initial: TransformerConfig | None = None) -> TransformerConfig:
        """Return the configuration of the model.  What has no flag is as in that of the model with
        which the run begins, if there is one."""
        config = initial or TransformerConfig(vocab_size)
        chosen = {name: getattr(self, name) for name in MODEL}
        return dataclasses.replace(config, vocab_size=vocab_size, **chosen)

    def problems(self) -> list[str]:
        """Return a line for each setting that cannot work with any text, with the remedy."""
        heads = head_problems(
            self.n_embd,
            self.n_head,
            self.n_kv_head,
            self.position,
            self.head_dim,
            names=[f"--{name}" for name in HEADS])
        lines = [*(f"--{line}" for line in problems(self)), *thread_problems(self.threads), *heads]
        if self.ahead >= self.block_size >= 1:
            lines.append(f"--ahead {self.ahead} looks beyond the block of {self.block_size}; give "
                         f"{self.block_size - 1} or less")
        return lines

    def warnings(self) -> list[str]:
        """Return a line for each setting that works but is probably a mistake."""
        usual = usual_settings(self.recipe)
        rate = self.learning_rate
        lowest = self.min_lr or 0.0
        muons = self.muon_lr if self.optimizer == "muon" else 0.0
        decays = {name: getattr(self, name) or 0.0 for name in ("weight_decay", "ngram_decay")}
        strongest = max(decays, key=decays.get)
        decay = decays[strongest]
        warnings = []
        if rate == 0:
            warnings.append("at --learning_rate 0 nothing is learned")
        if rate >= TOO_HIGH:
            warnings.append(f"--learning_rate {rate:g} is far too high for such a model; "
                            f"{usual['learning_rate']:g} is usual")
        if muons >= MUON_TOO_HIGH:
            warnings.append(f"--muon_lr {muons:g} is far too high for such a model; "
                            f"{usual['muon_lr']:g} is usual")
        if min(max(rate, muons), TOO_HIGH) * decay >= 1:
            warnings.append(f"a decay of {decay:g} times the learning rate takes all of a weight "
                            f"away in a step; --{strongest} "
                            f"{usual[strongest] or usual['weight_decay']:g} is usual")
        if lowest > rate > 0:
            warnings.append(f"--min_lr {lowest:g} is above --learning_rate {rate:g}, so the rate "
                            "rises at the end")
        return warnings


NAMES = option_names(Settings)
# Settings in older checkpoints: of runs, and of the model, whose configuration has them.
WITHOUT_FLAG = ("reduce", "replay", "log_interval", *option_names(ImportedOptions))
# What fine-tuning takes from the model; dropout is no part of its weights.
FIXED_BY_MODEL = tuple(name for name in MODEL if name not in TRAINING)
# What a resumed run cannot change.
FIXED_BY_RUN = ("recipe", *MODEL, "ahead", "optimizer", "seed", *option_names(AdapterOptions))

MODERN = dict(
    n_layer=4,
    n_head=4,
    n_embd=128,
    block_size=256,
    batch_size=8,
    windows="shuffled",
    dropout=0.0,
    bias=False,
    position="rotary",
    norm="rms",
    qk_norm=True,
    activation="relu2",
    zero_init=True,
    ngrams=5,
    ngram_rows=32768,
    ngram_dropout=0.5,
    ahead=2,
    optimizer="muon",
    muon_lr=0.01,
    equal_rows=True,
    learning_rate=4e-3,
    min_lr=0.0,
    warmup_iters=40,
    schedule="linear",
    decay_share=0.7,
    weight_decay=0.1,
    ngram_decay=1.0,
    beta1=0.9,
    beta2=0.99,
    grad_clip=1.0,
    eval_interval=100)
GPT2 = {name: getattr(Settings, name) for name in MODERN}
# What fine-tuning takes in place of the settings of "modern", which are for random weights
FINE_TUNED = dict(ahead=0, learning_rate=1.2e-3, muon_lr=3e-3)
# What the training of an adapter takes in place of its recipe's
ADAPTER = dict(
    ahead=0,
    optimizer="adamw",
    learning_rate=1e-3,
    weight_decay=0.0,
    ngram_decay=None,
    dropout=0.0,
    ngram_dropout=0.0)
LARGE_ADAPTER = dict(block_size=128, batch_size=2)      # of a large model, whose block may be long
RECIPES = {"modern": MODERN, "gpt2": GPT2}


def usual_settings(recipe: str) -> Values:
    """Return the usual value of each setting: that of the recipe, or else the default."""
    return dataclasses.asdict(Settings()) | RECIPES.get(recipe, {})


def complete_settings(
        flags: Values,
        characters: int,
        large: bool = False,
        vocabulary: int = 0) -> Values:
    """Return the settings of a new run on a text: the flags, and otherwise its recipe's.  A run
    without an explicit end stops after MINUTES, or after MOST_PASSES over a short text.  A large
    model is evaluated less often in a short run.  The rest is as for `recipe`."""
    name = flags.get("recipe", Settings.recipe)
    minutes = flags.get("minutes")
    max_iters = flags.get("max_iters")
    if minutes is None and max_iters is None:
        minutes = MINUTES
        if name != "gpt2" and characters and is_short(characters):
            step = Settings(**recipe(name, characters) | flags).characters
            max_iters = math.ceil(MOST_PASSES * 0.9 * characters / max(1, step))
    return recipe(
        name,
        characters=characters,
        minutes=minutes,
        max_iters=max_iters,
        flags=flags,
        large=large,
        vocabulary=vocabulary) | flags


def resolve_from_scratch(flags: Values, characters: int, vocabulary: int = 0) -> Settings:
    """Return the settings of a new run with random weights.

    Parameters
    ----------
    flags : those on the command line, by name.
    characters : the length of the text; 0 if it is not known.
    vocabulary : how many of them are different; 0 if that is not known.
    """
    return Settings(**complete_settings(flags, characters, vocabulary=vocabulary))


def resolve_resumed(
        flags: Values,
        earlier: Settings,
        whose: str = "the run") -> tuple[Settings, list[str]]:
    """Return the settings of a run that is resumed, and a line for each flag that contradicts what
    the run has fixed: `whose` is its name in these lines."""
    values = {name: getattr(earlier, name) for name in NAMES}
    if "minutes" in flags or "max_iters" in flags:      # one of them ends the run anew
        values |= dict(minutes=None, max_iters=None)
    current = values | dataclasses.asdict(earlier.model_config(1).resolved())
    fixed = {name: current[name] for name in FIXED_BY_RUN}
    remedy = "leave the flag out, or give another --out_dir"
    contradictions = _contradictions(
        flags,
        fixed,
        whose,
        remedy)
    settings = Settings(**values | _without(contradictions, flags))
    return settings, [*contradictions.values()]


def resolve_fine_tuned(
        flags: Values,
        config: TransformerConfig,
        characters: int,
        whose: str = "the model") -> tuple[Settings, list[str]]:
    """Return the settings of a new run that begins with the weights of a model of this
    configuration, on a text of that many characters; and a line for each flag that contradicts
    what the model has fixed: `whose` is its name in these lines."""
    from model.count.sizes import parameters
    values = {name: getattr(config, name) for name in FIXED_BY_MODEL}
    current = dataclasses.asdict(config.resolved())
    fixed = {name: current[name] for name in FIXED_BY_MODEL if name != "block_size"}
    contradictions = _contradictions(
        flags,
        fixed,
        whose,
        "leave the flag out")
    longest = config.block_size
    block_size = flags.get("block_size", 0)
    if config.position == "learned" and block_size > longest:
        contradictions["block_size"] = (
            f"--block_size {block_size} is more than the {longest} positions that {whose} has "
            f"learnt; take {longest} or less")
    is_large = parameters(config) >= LARGE
    if "lora" in flags:
        values |= ADAPTER
        if is_large:
            values |= LARGE_ADAPTER
            values["block_size"] = min(longest, values["block_size"])
    elif flags.get("recipe", Settings.recipe) == "modern":
        values |= FINE_TUNED
    values |= _without(contradictions, flags)
    return Settings(**complete_settings(values, characters, is_large)), [*contradictions.values()]


def _contradictions(flags, fixed, whose, remedy):
    """Return a line for each flag with another value than the one that is fixed, by its name."""
    lines = {}
    for name, value in fixed.items():
        if flags.get(name, value) != value:
            has = f"no --{name}" if value is None else f"--{name} {shown(value)}"
            lines[name] = f"{whose} has {has}, which cannot become {flags[name]}; {remedy}"
    return lines


def _without(names, flags):
    """Return the flags but for those of these names."""
    return {name: value for name, value in flags.items() if name not in names}


def thread_problems(threads: int) -> list[str]:
    """Return a line if this process cannot have so many threads."""
    most, why = compiled.thread_limit()
    return [f"--threads is at most {most} here, not {threads}: {why}"] if threads > most else []


def describe_settings(s: Settings) -> str:
    """Describe the settings of a run: its recipe, and as flags what differs from that."""
    usual = usual_settings(s.recipe)
    own = {name: getattr(s, name) for name in (*MODERN, *MODEL, "minutes", "max_iters")
           if getattr(s, name) != usual[name]}
    if not own:
        return s.recipe
    words = " ".join(flag.replace(" ", "\xa0") for flag in as_flags(own))   # wrapped before flags
    return textwrap.fill(
        f"{s.recipe}, with {words}",
        width=88,
        subsequent_indent=12 * " ",
        break_long_words=False,
        break_on_hyphens=False).replace("\xa0", " ")


# How the recipe "modern" fits a run to its text.  docs/recipe.md, "Texts of other lengths", has
# the measurements from which these numbers come.
MINUTES = 3.0
# The passes over the built-in plays in three minutes.  The more passes a run makes over its text,
# the more dropout it needs against learning the text by heart.
USUAL_PASSES = 2.9
MOST_PASSES = 20.0          # after which a run without an explicit end stops
CHARACTERS_A_MINUTE = 1_000_000     # of training, about, on two laptop processors
LEAST_STEPS = 90            # in those passes; a shorter text gets smaller batches
WARMUP_PART = 4             # the warm-up takes at most a fourth of the steps
EVALUATIONS = 10            # at least, on a short text: its best model may come early
# A run looks further ahead on a text of so many characters or more, of which at most so many are
# different: for a shorter one the loss would be higher, and with more of them a step too long.
FAR_FROM = 300_000
MOST_AHEAD = 256
LARGE = 50_000_000          # parameters of a model whose evaluations and checkpoints take long;
LEAST_INTERVAL = 25         # fine-tuned, it is evaluated at most every so many steps
# Added to ngram_dropout for each doubling of USUAL_PASSES, if the text is short.
MORE_NGRAMS = 0.07
# Added to dropout for each halving of the text and each quadrupling of the time; and the most.
MORE_ACTIVATIONS = 0.05
MOST_ACTIVATIONS = 0.15


def recipe(
        name: str,
        characters: int = 0,
        minutes: float | None = None,
        max_iters: int | None = None,
        flags: Values | None = None,
        large: bool = False,
        vocabulary: int = 0) -> Values:
    """Return the settings of a recipe for a text of that many characters, of which so many are
    different (`vocabulary`; 0 if that is not known), and a run of that length, whose steps are as
    large as the flags make them.

    "gpt2" is the same for every text; so is "modern" if `characters` is 0.  Otherwise "modern" fits
    its batches to the text, and its dropout to the number of passes over it (`fit_batch`,
    `fit_dropout`).  On a short text, or one of many different characters, it predicts the next one
    alone.  A short run warms up more quickly.  On a short text it is evaluated more often, unless
    the model is `large`.
    """
    chosen = RECIPES.get(name, MODERN) | dict(minutes=minutes, max_iters=max_iters)
    if name == "gpt2" or not characters:
        return chosen
    chosen |= fit_batch(characters)
    if characters < FAR_FROM or vocabulary > MOST_AHEAD:
        chosen["ahead"] = 0
    train = 0.9 * characters
    read = MOST_PASSES * train
    if minutes is not None:
        read = min(minutes * CHARACTERS_A_MINUTE, read)
    if max_iters is not None:
        sizes = {name: chosen[name] for name in ("block_size", "batch_size")}
        step = Settings(**sizes | (flags or {})).characters
        read = min(max_iters * step, read)
        chosen["warmup_iters"] = min(chosen["warmup_iters"], max(0, max_iters // WARMUP_PART))
        if is_short(characters):
            least = LEAST_INTERVAL if large else 1
            interval = max(least, max_iters // EVALUATIONS)
            chosen["eval_interval"] = min(chosen["eval_interval"], interval)
    return chosen | fit_dropout(read, passes=max(1.0, read / train))


def fit_batch(characters: int) -> Values:
    """Return the sizes of batches for a text: blocks that are shorter than the validation split,
    and batches so small that MOST_PASSES take LEAST_STEPS."""
    block_size = MODERN["block_size"]
    batch_size = MODERN["batch_size"]
    while block_size > 8 and characters // 10 <= block_size:
        block_size //= 2
    read = MOST_PASSES * (0.9 * characters)
    while batch_size > 1 and read < LEAST_STEPS * batch_size * block_size:
        batch_size //= 2
    return dict(block_size=block_size, batch_size=batch_size)


def fit_dropout(read: float, passes: float) -> Values:
    """Return the dropout of a run that reads so many characters, in so many passes over its text.

    From the second pass on, n-grams are dropped, because a model learns these by heart first.  Of a
    short text, more of them are; a longer run adds nothing to this.  Beyond USUAL_PASSES,
    activations are dropped too, and a short text adds more to this than a long run does.
    """
    dropout = MODERN["dropout"]
    ngram_dropout = MODERN["ngram_dropout"]
    doublings = math.log2(passes / USUAL_PASSES)
    if doublings > 0:
        longer = math.log2(read / (MINUTES * CHARACTERS_A_MINUTE))
        shorter = doublings - longer
        share = MORE_ACTIVATIONS * (shorter + longer / 2)
        dropout = min(max(0.0, share), MOST_ACTIVATIONS)
        of_the_text = min(doublings, shorter)       # without what a longer run adds
        ngram_dropout += MORE_NGRAMS * max(0.0, of_the_text)
    else:
        ngram_dropout *= math.log(passes, USUAL_PASSES)
    return dict(dropout=round(dropout, 2), ngram_dropout=round(ngram_dropout, 2))


def is_short(characters: int) -> bool:
    """Return whether MOST_PASSES over a text of this length end before MINUTES do."""
    return MOST_PASSES * 0.9 * characters < MINUTES * CHARACTERS_A_MINUTE
