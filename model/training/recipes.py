"""Complete settings by name (--recipe), adapted to the size of the text and the time available."""
import math
import textwrap

from model.console.options import as_flags
from model.training.settings import ARCHITECTURE, OF_MODEL, Settings

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
