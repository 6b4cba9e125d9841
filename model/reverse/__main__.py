"""Train an encoder-decoder to reverse strings, or to sort their letters:  python -m model.reverse

    --task sort         the same letters in the order of the alphabet
    --text hello        a string of your own, once it is trained
    --out_dir out_reverse       save the model; python -m model.look --out_dir out_reverse shows it

Strings are random letters of every length up to --block_size.  One in ten, by the remainder of its
CRC-32, is kept out of training; on such strings alone the model is judged.
"""
import dataclasses
import itertools
import math
import string
import sys
import time
import zlib
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

import minigrad as mg
from data.tokenizer import CharTokenizer
from minigrad import compiled
from minigrad.machine import check_fits
from minigrad.optim import cosine, warm_up
from minigrad.words import number_of
from model.answers import answering, command_line, tell
from model.checkpoint import BEST, save_checkpoint
from model.command import Parser
from model.config import HEADS, head_problems
from model.folder import Folder
from model.interrupts import Interrupts
from model.layers import Rng
from model.options import as_flags, flag, problems
from model.reverse.encoder_decoder import PAD, EncoderDecoder, EncoderDecoderConfig
from model.settings import thread_problems

TASKS = {"reverse": lambda letters: letters[::-1],
         "sort": lambda letters: "".join(sorted(letters))}
LETTERS = CharTokenizer(string.ascii_lowercase)
NUL, STX, ETX = "\0\2\3"        # ASCII's padding, start of text, end of text: PAD, BEGIN, END
VOCABULARY = CharTokenizer(NUL + STX + ETX + LETTERS.vocabulary)
JUDGED = 2000                   # unseen strings, all different
QUICKLY = 200                   # of these, while training goes on
EXAMPLES = 5
SIZES = {field.name: field for field in dataclasses.fields(EncoderDecoderConfig)}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command; the names are nanoGPT's where it has one."""
    task: str = flag("reverse", "reverse or sort", choices=tuple(TASKS))
    text: str = flag(None, "a string of your own to show: letters from a to z")
    max_iters: int = flag(800, "optimiser steps", at_least=0)
    batch_size: int = flag(64, "strings of a batch, B", at_least=1)
    block_size: int = flag(10, "letters of the longest string", at_least=4)
    n_layer: int = SIZES["n_layer"]
    n_head: int = SIZES["n_head"]
    n_embd: int = SIZES["n_embd"]
    dropout: float = SIZES["dropout"]
    bias: bool = SIZES["bias"]
    learning_rate: float = flag(1e-2, "the highest that AdamW gets", above=0)
    warmup_iters: int = flag(100, "steps over which the learning rate rises; it then falls to 0",
                             at_least=0)
    eval_interval: int = flag(200, "steps between looks at how many strings are right", at_least=1)
    out_dir: str = flag(None, "folder to save the model in", unset="it is not saved")
    seed: int = flag(1337, "of the initial weights, the strings and dropout", at_least=0)
    threads: int = flag(1, "processors to use", at_least=1)

    def problems(self) -> list[str]:
        """Return the settings that cannot work, one line each."""
        lines = [*(f"--{line}" for line in problems(self)),
                 *head_problems(self.n_embd, self.n_head,
                                names=[f"--{name}" for name in HEADS]),
                 *thread_problems(self.threads)]
        try:
            LETTERS.encode(self.text or "")
        except ValueError as error:
            lines.append(f"--text takes letters from a to z: {error}")
        if self.text is not None and not 1 <= len(self.text) <= self.block_size:
            lines.append(f"--text has from 1 to --block_size={self.block_size} letters, and not "
                         f"{len(self.text)}")
        return lines


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser("python -m model.reverse", __doc__, Settings)
    s = Settings(**parser.parse(argv))
    parser.refuse(s.problems())
    with answering("model.reverse"), Interrupts(at_once=True):
        sizes = {name: getattr(s, name) for name in ("n_layer", "n_embd", "batch_size",
                                                     "block_size")}
        check_fits(step_bytes(s), ", ".join(as_flags(sizes)))
        with Folder(s.out_dir or "") as folder:
            if s.out_dir:
                folder.begin()
            run(s, folder)


def run(s: Settings, folder: Folder) -> None:
    """Train a model, judge it, save it, and show examples."""
    compiled.set_threads(s.threads)
    model = new_model(s)
    tell(f"task        {s.task} strings of 1 to {s.block_size} letters",
         f"model       {sum(p.size for p in model.parameters()):,} parameters: "
         f"{number_of(s.n_layer, 'layer')} to read, {s.n_layer} to write, "
         f"{number_of(s.n_head, 'head')}, {number_of(s.n_embd, 'channel')}",
         f"training    {number_of(s.max_iters, 'step')} of {number_of(s.batch_size, 'string')}; "
         "one in ten of all strings is kept out", "")
    compiled.announce("compiling  ", sys.stderr)
    judged = unseen_strings(s)
    started = time.perf_counter()
    train(s, model, judged)
    seconds = time.perf_counter() - started
    right = count_right(model, s.task, judged)
    tell(f"\n{right:,} of {len(judged):,} unseen strings are right, {right / len(judged):.2%}, "
         f"after {seconds:.0f} seconds of training\n")
    examples = judged[:EXAMPLES] + [s.text] * bool(s.text)
    for text, answer in zip(examples, answers(model, examples)):
        right_answer = TASKS[s.task](text)
        visible = answer.replace(NUL, "?").replace(STX, "?")
        tell(f"    {text:{s.block_size}}  ->  {visible}"
             + f"   wrong: {right_answer}" * (answer != right_answer))
    if s.out_dir:
        save_checkpoint(folder / BEST, model, VOCABULARY,
                        {"settings": dataclasses.asdict(s), "right": right, "judged": len(judged)})
        tell("\nwhere its heads look:",
             f"    {command_line('model.look', '--out_dir', folder.path)}")


def step_bytes(s: Settings) -> int:
    """Return the bytes of all arrays, in float32, at the peak of a training step or of judging, to
    about a third.

    For each parameter: itself, its gradient, and AdamW's two averages.  For each position: in
    training 36 C in a block of the encoder and one of the decoder; in judging 13 C in all.
    """
    C = s.n_embd
    T = s.block_size + 1
    L = s.n_layer
    weights = 28 * L * C**2 + (VOCABULARY.vocab_size + T) * C       # but for biases and norms
    positions = max(s.batch_size * 36 * L, JUDGED * 13) * T * C
    return 4 * (4 * weights + positions)


def new_model(s: Settings) -> EncoderDecoder:
    """Return an untrained model with these settings."""
    config = EncoderDecoderConfig(VOCABULARY.vocab_size, s.block_size + 1, s.n_layer, s.n_head,
                                  s.n_embd, s.dropout, s.bias)
    return EncoderDecoder(config, s.seed)


def train(s: Settings, model: EncoderDecoder, judged: list[str]) -> None:
    """Train on strings that are not kept out; report now and then how many of some that are kept
    out are right."""
    optimizer = mg.AdamW(model.parameters(), s.learning_rate, betas=(0.9, 0.99))
    rng = np.random.default_rng([s.seed, 1])
    strings = random_strings(s, kept_out=False)
    steps = range(1, s.max_iters + 1)
    with tqdm(steps, unit="step", dynamic_ncols=True, disable=None) as bar:
        for step in bar:
            done = step - 1
            fall = cosine(done / s.max_iters, s.warmup_iters / s.max_iters)
            optimizer.param_groups[0]["lr"] = (
                s.learning_rate * warm_up(done, s.warmup_iters) * fall)
            loss = training_loss(model, s.task, list(itertools.islice(strings, s.batch_size)), rng)
            if not math.isfinite(loss.item()):
                raise ValueError(f"the loss became {loss.item()} at step {step:,}; train again "
                                 "with a lower --learning_rate")
            loss.backward()
            mg.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if step % s.eval_interval == 0:
                right = count_right(model, s.task, judged[:QUICKLY])
                with bar.external_write_mode(sys.stdout):
                    tell(f"step {step:6,}   loss {loss.item():.3f}   right {right} of {QUICKLY} "
                         "unseen strings")


def training_loss(model: EncoderDecoder, task: str, texts: list[str], rng: Rng = None) -> mg.Tensor:
    """Return the mean -log p of every letter of the answers and of their end, in nats."""
    target = as_ids([STX + TASKS[task](text) + ETX for text in texts])              # (B, T + 1)
    logits = model(as_ids(texts), target[:, :-1], rng)                              # (B, T, V)
    return mg.cross_entropy(logits, target[:, 1:], ignore_index=PAD)


def answers(model: EncoderDecoder, texts: list[str]) -> list[str]:
    """Return the model's answer to each string, up to the end token."""
    return [VOCABULARY.decode(ids).split(ETX)[0] for ids in model.write(as_ids(texts))]


def count_right(model: EncoderDecoder, task: str, texts: list[str]) -> int:
    """Count the strings whose answer is right in every letter and in its end."""
    return sum(a == TASKS[task](text) for text, a in zip(texts, answers(model, texts)))


def is_kept_out(text: str) -> bool:
    """Whether training must not see a string; true for one in ten."""
    return zlib.crc32(text.encode()) % 10 == 0


def random_strings(s: Settings, kept_out: bool) -> Iterator[str]:
    """Yield strings without end, every length equally likely, that are kept out or are not."""
    rng = np.random.default_rng([s.seed, 2 + kept_out])
    while True:
        letters = rng.integers(LETTERS.vocab_size, size=rng.integers(1, s.block_size + 1))
        text = LETTERS.decode(letters)
        if is_kept_out(text) == kept_out:
            yield text


def unseen_strings(s: Settings, count: int = JUDGED) -> list[str]:
    """Return `count` different strings that training keeps out."""
    different = {}
    for text in random_strings(s, kept_out=True):
        different[text] = True
        if len(different) == count:
            return list(different)


def as_ids(texts: list[str]) -> np.ndarray:
    """Return one row for each string, padded to the longest: (B, T)."""
    T = max(map(len, texts))
    padded = "".join(text.ljust(T, NUL) for text in texts)
    return VOCABULARY.encode(padded).reshape(-1, T)


if __name__ == "__main__":
    main()
