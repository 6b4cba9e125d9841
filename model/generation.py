"""Text from a model, a character at a time: which characters may come next, and drawing one."""
from collections.abc import Iterator

import numpy as np

from minigrad import kernels, no_grad
from model.tokenizer import CharTokenizer
from model.transformer import Transformer

USELESS = ("the model gave no usable prediction (nan or infinite logits); its training may have "
           "diverged: train again with a lower --learning_rate")


def next_probabilities(logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None,
                       top_p: float | None = None) -> np.ndarray:
    """How likely each character is to be drawn, (V,) -> (V,) float64, summing to 1.

    Parameters
    ----------
    temperature : divides the logits; 0 takes the likeliest character for certain.
    top_k : keep only so many of the likeliest characters.
    top_p : then keep the fewest likeliest that together have at least this probability
        (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1).
    """
    check_settings(temperature, top_k, top_p)
    logits = np.asarray(logits, np.float64)
    if logits.ndim != 1 or not logits.size:
        raise ValueError("logits are one row of numbers, one for each character of the vocabulary; "
                         f"these have the shape {list(logits.shape)}")
    return _draw(logits[None], np.zeros(1), temperature, top_k, top_p)[1][0]


def check_settings(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse what has no meaning, in words that name it."""
    if not 0 <= temperature < np.inf:
        raise ValueError(f"temperature is a number of at least 0 (0 is greedy), not {temperature}")
    if top_k is not None and (not isinstance(top_k, (int, np.integer)) or top_k < 1):
        raise ValueError(f"top_k is a whole number of at least 1, not {top_k}; "
                         "leave it out to keep every character")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a probability above 0 and at most 1, not {top_p}")


def _draw(logits, u, temperature, top_k, top_p):
    drawn, p = kernels.draw(logits, u, temperature, top_k, top_p)
    if drawn.min() < 0:
        raise ValueError(USELESS)
    return drawn, p


def stream(model: Transformer, tokenizer: CharTokenizer, prompt: str = "",
           max_new_tokens: int = 500, temperature: float = 1.0, top_k: int | None = None,
           top_p: float | None = None, seed: int | None = None,
           stop: str | None = None) -> Iterator[str]:
    """Yield the continuation of a prompt, as pieces of text, as they are made.

    Every character is predicted from the last `block_size` before it.  The text ends after
    `max_new_tokens` characters, or before `stop` would be written.  An empty prompt begins where
    the text does, with the vocabulary's line break if it has one, else with its first character.
    """
    check_settings(temperature, top_k, top_p)
    ids = list(tokenizer.encode(prompt or ("\n" if "\n" in tokenizer.vocabulary
                                           else tokenizer.vocabulary[0])))
    return _continue(model, tokenizer, ids, max_new_tokens, temperature, top_k, top_p, seed, stop)


def _continue(model, tokenizer, ids, max_new_tokens, temperature, top_k, top_p, seed, stop):
    rng = np.random.default_rng(seed)
    held = ""           # what may turn out to be the beginning of `stop`
    for _ in range(max_new_tokens):
        with no_grad():
            logits = model(np.array(ids[-model.config.block_size:])).data[-1:]
        drawn, _ = _draw(logits, np.array([rng.random()]), temperature, top_k, top_p)
        ids += drawn.tolist()
        held += tokenizer.decode(ids[-1:])
        if stop and held.endswith(stop):
            held = held[:-len(stop)]
            break
        kept = _could_become(held, stop) if stop else 0
        if len(held) > kept:
            yield held[:len(held) - kept]
            held = held[len(held) - kept:]
    if held:
        yield held


def _could_become(text, stop):
    """Length of the longest end of the text that is a beginning of `stop`."""
    return next(n for n in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:n]))


def generate(model: Transformer, tokenizer: CharTokenizer, prompt: str = "",
             max_new_tokens: int = 500, temperature: float = 1.0, top_k: int | None = None,
             top_p: float | None = None, seed: int | None = None, stop: str | None = None) -> str:
    """The prompt and its continuation; the arguments are those of `stream`."""
    return prompt + "".join(stream(model, tokenizer, prompt, max_new_tokens, temperature, top_k,
                                   top_p, seed, stop))
