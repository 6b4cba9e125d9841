"""Whole settings by name, --recipe, and how they follow from the text."""
import textwrap

from model.flags import as_flags
from model.settings import Settings

# What the built-in texts are trained with.
MODERN = dict(
    minutes=3.0, n_layer=4, n_head=4, n_embd=128, block_size=128, batch_size=16, dropout=0.0,
    bias=False, position="rotary", norm="rms", qk_norm=True, activation="relu2", zero_init=True,
    tied=False, ngrams=5, ngram_rows=32768, optimizer="muon", muon_lr=0.01, learning_rate=4e-3,
    min_lr=0.0, warmup_iters=40, schedule="linear", decay_share=0.7, weight_decay=0.1, beta1=0.9,
    beta2=0.99, grad_clip=1.0, eval_interval=100)
GPT2 = {name: value for name, value in vars(Settings()).items() if name in MODERN} | dict(
    minutes=3.0)
RECIPES = {"modern": MODERN, "gpt2": GPT2}


def recipe(name: str, characters: int) -> dict[str, object]:
    """All settings that a recipe names, as they suit a text of so many characters."""
    return RECIPES.get(name, MODERN) | {}


def completed(given: dict[str, object], characters: int) -> dict[str, object]:
    """The settings of a new run: its recipe's, but for those that are given."""
    chosen = recipe(given.get("recipe", Settings.recipe), characters)
    if "max_iters" in given:            # which end the run, and no clock unless that is given too
        chosen["minutes"] = None
    return chosen | given


def told(s: Settings, characters: int) -> str:
    """A run's recipe in full, and what it has in place of that, as flags, in lines."""
    named = recipe(s.recipe, characters)
    own = {name: getattr(s, name) for name in ("max_iters", *named)
           if getattr(s, name) != named.get(name)}
    if s.max_iters is not None and s.minutes is None:
        del named["minutes"]
    lines = wrapped(f"{s.recipe}:", as_flags(named))
    if own:
        lines += wrapped("but for", as_flags(own))
    return f"\n{'':12}".join(lines)


def wrapped(begin: str, flags: list[str]) -> list[str]:
    """Lines of flags, none of which is cut from its value."""
    text = " ".join([begin, *(flag.replace(" ", "\xa0") for flag in flags)])
    return [line.replace("\xa0", " ")
            for line in textwrap.wrap(text, 88, break_long_words=False, break_on_hyphens=False)]
