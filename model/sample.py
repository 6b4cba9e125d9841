"""Write text from a trained checkpoint:  python -m model.sample --start "MARA:"

    --interactive       type beginnings, and see each continued
    --score FILE        no text, but how well the model predicts that of a file

The text goes to standard output as it is made; everything else goes to standard error.
"""
import dataclasses
import itertools
import math
import pathlib
import sys
import time

import data
from data.tokenizer import CharTokenizer, UnknownCharacterError
from minigrad.kernels.build import compiling
from model.console.flags import Parser, answering, prepare_output, text_or_file
from model.console.options import flag, problems
from model.console.words import in_a_line
from model.sampling.generation import USELESS, check_settings, stream_many
from model.sampling.interactive import interact
from model.sampling.scoring import ladder, text_losses, training_text, yardstick
from model.storage.checkpoint import Checkpoint, load_checkpoint

TOGETHER = 16       # samples that are made at once
RULE = "-" * 20     # between them
NAMED = 5           # unknown characters that are named


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command; the names are nanoGPT's where it has one."""
    out_dir: str = flag("out", "folder of the run, with its ckpt.npz")
    start: str = flag("", "beginning to go on from, or FILE:path to read it from a file")
    num_samples: int = flag(1, "how many texts", at_least=1)
    max_new_tokens: int = flag(500, "characters to write after the beginning", at_least=1)
    temperature: float = flag(0.8, "0 takes the likeliest character, 1 draws as the model predicts",
                              finite=False)
    top_k: int = flag(None, "draw from so many of the likeliest characters only", unset="all")
    top_p: float = flag(None, "draw from the likeliest that together have this probability",
                        unset="all")
    seed: int = flag(1337, "of the draws; the next sample takes the next number", at_least=0)
    stop: str = flag(None, "end a text before this would be written")
    cache: bool = flag(True, "keep keys and values instead of computing them again for each "
                             "character; the text is the same")
    slide: bool = flag(False, "once the block is full, predict from the whole of it, which is then "
                              "read again for each character; else from more than half of it")
    interactive: bool = flag(False, "ask for beginnings, one after another; what is typed is kept "
                                    "as the shell keeps it, in the cache folder")
    score: str = flag(None, "a file, or another text that train.py's --data takes, to predict "
                            "instead of writing one")
    skip_unknown: bool = flag(False, "with --score, leave out the characters that the model does "
                                     "not know")

    def problems(self) -> list[str]:
        """Return the settings that have no meaning, one line each."""
        found = problems(self)
        try:
            check_settings(self.temperature, self.top_k, self.top_p)
        except ValueError as error:
            found.append(f"--{error}")
        return found


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    prepare_output()
    parser = Parser("python -m model.sample", __doc__, Settings)
    given = parser.given(argv)
    s = Settings(**given)
    parser.refuse(s.problems())
    if s.skip_unknown and s.score is None:
        parser.error("--skip_unknown leaves characters out of a text that is scored; give --score")
    if s.score is not None and (idle := given.keys() - {"out_dir", "score", "slide",
                                                        "skip_unknown"}):
        parser.error("--score predicts a text and writes none; leave out "
                     + ", ".join(f"--{name}" for name in sorted(idle)))
    with answering("model.sample", unread=0):      # a reader such as `head` has seen enough
        checkpoint = load_checkpoint(pathlib.Path(s.out_dir) / "ckpt.npz")
        compiling.announce("compiling", sys.stderr)
        if s.score is not None:
            score(s, checkpoint)
            return
        start = text_or_file(s.start)
        if s.interactive:
            seeds = itertools.count(s.seed, s.num_samples)

            def go_on(start):
                checkpoint.tokenizer.encode(start)      # a refused start uses up no seed
                write(s, checkpoint, start, next(seeds))
            interact(go_on, start)
            return
        characters, seconds = write(s, checkpoint, start, s.seed)
        if characters:
            print(f"{characters / seconds:,.0f} characters a second", file=sys.stderr)


def write(s: Settings, checkpoint: Checkpoint, start: str, seed: int) -> tuple[int, float]:
    """Write the samples; return how many characters were timed, and the seconds that they took."""
    characters, seconds = 0, 0.0
    # A step's kernel is loaded after two characters; those that re-read a window after a block.
    under_way = max(2, min(checkpoint.model.config.block_size + 1, s.max_new_tokens * 3 // 4))
    for first in range(0, s.num_samples, TOGETHER):
        seeds = range(seed + first, seed + min(first + TOGETHER, s.num_samples))
        if first:
            print(RULE)
        pieces = stream_many(checkpoint.model, checkpoint.tokenizer, start, seeds, s.max_new_tokens,
                             s.temperature, s.top_k, s.top_p, s.stop, s.cache, s.slide)
        print(start, end="", flush=True)
        later = [[] for _ in seeds[1:]]
        try:
            for n, (piece, *others) in enumerate(pieces):
                print(piece, end="", flush=True)
                for text, other in zip(later, others):
                    text.append(other)
                if n < under_way:
                    began = time.perf_counter()
                else:
                    characters += len(piece) + sum(map(len, others))
            seconds += time.perf_counter() - began
        finally:                # show what was made of the others before an interrupt, too
            print()
            for text in later:
                print(RULE, start + "".join(text), sep="\n")
    return characters, seconds


def score(s: Settings, checkpoint: Checkpoint) -> None:
    """Say how well the model predicts a text, beside n-grams counted on its training text."""
    model, tokenizer, training, _ = checkpoint
    text = data.read_text(s.score)
    if s.skip_unknown:
        text = known_part(text, tokenizer)
    try:
        ids = tokenizer.encode(text)
    except UnknownCharacterError as error:
        raise ValueError(f"{error}; --skip_unknown leaves such characters out") from error
    loss = text_losses(model, ids, s.slide, bar=True).mean()
    if not math.isfinite(loss):
        raise ValueError(USELESS)
    print(f"{s.score}: {len(text):,} characters, each but the first predicted from earlier ones\n\n"
          f"    {loss:.4f}  nats a character\n"
          f"    {loss / math.log(2):.4f}  bits a character\n"
          f"    {math.exp(loss) if loss < 700 else math.inf:.4f}  perplexity\n")
    try:
        known = training_text(training, tokenizer)
    except ValueError as error:
        print(f"without counted n-grams beside it, because {in_a_line(error)}", file=sys.stderr)
        return
    print("nats a character, beside n-grams counted on what the model was trained on:")
    print(ladder(loss, yardstick(known.train, ids, tokenizer.vocab_size)))
    train, _ = known.parts()
    if text in train or train in text:
        print("this very text, or most of it, was trained on and counted", file=sys.stderr)


def known_part(text: str, tokenizer: CharTokenizer) -> str:
    """Return the text without characters that the model does not know, and say which these were."""
    known, unknown = tokenizer.without_unknown(text)
    if unknown:
        named = [f"{c!r} ({count:,})" for c, count in unknown.items()]
        print(f"left out {len(text) - len(known):,} of {len(text):,} characters, which the model "
              f"does not know: {', '.join(named[:NAMED])}"
              + f" and {len(named) - NAMED:,} more" * (len(named) > NAMED), file=sys.stderr)
    return known


if __name__ == "__main__":
    main()
