"""Write text from a trained checkpoint:  python -m model.sample --start "MARA:"

    --chat "What is gravity?"   ask a model that was made to answer
    --interactive       type beginnings, and see each continued; or questions, and see each answered
    --score FILE        no text, but how well the model predicts that of a file

The text goes to standard output as it is made; everything else goes to standard error.
"""
import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence

from minigrad import compiled
from model.answers import announced_if_slow, answering, text_or_file
from model.checkpoint import Checkpoint, checkpoint_path, load_checkpoint
from model.command import Parser
from model.generation import AT_ONCE, Drawing, stream_many
from model.options import Words, flag

TOGETHER = 16       # samples that are drawn at once
RULE = "-" * 20     # between them
SCORE_FLAGS = {"out_dir", "score", "slide", "skip_unknown", "prove", "counted", "counted_weight"}
NOT_FOR_CHATS = {"num_samples", "slide"}


@dataclasses.dataclass(frozen=True)
class Settings(Drawing):
    """The settings of the command; the names are nanoGPT's where it has one."""
    out_dir: Words = flag(("out",), "folder of the run, with its ckpt.npz, or a checkpoint; "
                                    "the predictions of several are averaged")
    start: str = flag("", "beginning to continue, or FILE:path to read it from a file")
    num_samples: int = flag(1, "how many texts", at_least=1)
    max_new_tokens: int = flag(500, "characters to write after the beginning, or tokens if the "
                                    "model has tokens", at_least=1)
    seed: int = flag(1337, "of the draws; the next sample takes the next number", at_least=0)
    counted: int = flag(
        None,
        "mix in n-grams of up to so many characters, counted in the training text; 9 is good",
        unset="none",
        at_least=1)
    counted_weight: float = flag(
        0.25,
        "with --counted, the share of the counts in each probability",
        at_least=0,
        at_most=1)
    stop: str = flag(None, "end a text before this would be written")
    cache: bool = flag(True, "use the KV cache instead of computing keys and values again for each "
                             "character or token; the text is the same")
    slide: bool = flag(False, "once the block is full, predict each one from the whole block, and "
                              "read it again each time; otherwise from more than half of it")
    interactive: bool = flag(False, "ask for beginnings, one after another; they are kept in the "
                                    "cache folder, like the history of a shell")
    chat: str = flag(None, "ask this question, or FILE:path, in the words of the model's chat "
                           "template")
    system: str = flag(None, "with --chat or --interactive, what the model is told before the "
                             "first question, or FILE:path", unset="what its template says")
    score: str = flag(None, "predict this text instead of writing one: a UTF-8 file, "
                            "shakespeare or lantern")
    prove: bool = flag(False, "with --score, prove that the probabilities are probabilities: they "
                              "sum to 1, see no future, and compress the text as the loss says")
    skip_unknown: bool = flag(False, "with --score, leave out the characters that the model does "
                                     "not know")


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser("python -m model.sample", __doc__, Settings)
    flags = parser.parse(argv)
    s = Settings(**flags)
    if mistakes := contradictions(s, flags):
        parser.refuse(mistakes)
    with answering("model.sample", unread=0):      # a reader such as `head` has seen enough
        path, *more = map(checkpoint_path, s.out_dir)
        with announced_if_slow(f"reading {path}"):
            checkpoint = load_checkpoint(path)
            if more:
                from model.score.mean import average_checkpoints
                checkpoint = average_checkpoints(checkpoint, more)
        if s.counted is not None:
            from model.counted.mixture import with_counts
            checkpoint = with_counts(checkpoint, s.counted, s.counted_weight)
        compiled.announce("compiling", sys.stderr)
        has_chat_template = checkpoint.tokenizer.chat_template is not None
        if s.score:
            from model.score.text import score
            score(
                checkpoint,
                s.score,
                s.slide,
                s.skip_unknown,
                s.prove)
        elif s.chat or s.system is not None or s.interactive and has_chat_template:
            refuse_unused(flags.keys())
            from model.chat.session import chat
            chat(checkpoint, s)
        elif s.interactive:
            from model.interactive.session import continue_typed

            def continue_start(start: str, n: int) -> None:
                write(
                    s,
                    checkpoint,
                    start,
                    seed=s.seed + n * s.num_samples)
            continue_typed(text_or_file(s.start), checkpoint.tokenizer.encode, continue_start)
        else:
            if has_chat_template:
                print("this model was made to answer, and continues a text here; ask it by --chat",
                      file=sys.stderr)
            tokens, characters, seconds = write(
                s,
                checkpoint,
                text_or_file(s.start),
                s.seed)
            if characters:
                speed = f"{characters / seconds:,.0f} characters a second"
                if checkpoint.tokenizer.unit == "token":
                    speed = f"{tokens / seconds:,.1f} tokens, {speed}"
                print(speed, file=sys.stderr)


def contradictions(s: Settings, names: Iterable[str]) -> list[str]:
    """Return a line for each flag, of these names, that means nothing beside the others."""
    mistakes = []
    if s.chat and s.start:
        mistakes.append("--chat asks a question, and --start continues a text; leave out one")
    if s.system is not None and not (s.chat or s.interactive):
        mistakes.append("--system is for a conversation; give --chat or --interactive")
    if "counted_weight" in names and s.counted is None:
        mistakes.append("--counted_weight is a share of counted n-grams; give --counted 9")
    if s.score:
        unused = sorted(set(names) - SCORE_FLAGS)
        if unused:
            mistakes = ["--score predicts a text and writes none; leave out --"
                        + ", --".join(unused)]
    elif s.skip_unknown or s.prove:
        mistakes.append("--skip_unknown and --prove are for a text that is scored; give --score")
    return mistakes


def refuse_unused(names: Iterable[str]) -> None:
    """Refuse settings that mean nothing in a conversation."""
    unused = sorted(NOT_FOR_CHATS.intersection(names))
    if unused:
        raise ValueError(f"this model was made to chat, and answers once, within its block; leave "
                         f"out --{', --'.join(unused)}")


def write(s: Settings, checkpoint: Checkpoint, start: str, seed: int) -> tuple[int, int, float]:
    """Print the samples; return how many ids and characters were timed, and their seconds."""
    model, tokenizer, *_ = checkpoint
    ids = 0
    characters = 0
    seconds = 0.0
    for first in range(0, s.num_samples, TOGETHER):
        seeds = range(seed + first, seed + min(first + TOGETHER, s.num_samples))
        if first:
            print(RULE)
        stream = Timed(stream_many(
            model,
            tokenizer,
            start,
            seeds,
            max_new_tokens=s.max_new_tokens,
            temperature=s.temperature,
            top_k=s.top_k,
            top_p=s.top_p,
            stop=s.stop,
            cache=s.cache,
            slide=s.slide))
        texts = show(stream, start, len(seeds))
        seconds += stream.seconds
        for pieces in texts:
            timed = pieces[AT_ONCE:]
            characters += sum(map(len, timed))
            ids += count_ids(timed, s.max_new_tokens - AT_ONCE)
    return ids, characters, seconds


def show(stream: Iterable[list[str]], start: str, count: int) -> list[list[str]]:
    """Print the first of so many texts while it is written, then the others; return the pieces of
    each."""
    texts = [[] for _ in range(count)]
    print(start, end="", flush=True)
    try:
        for pieces in stream:
            print(pieces[0], end="", flush=True)
            for text, piece in zip(texts, pieces):
                text.append(piece)
    finally:                # after an interrupt, too
        print()
        for text in texts[1:]:
            print(RULE, start + "".join(text), sep="\n")
    return texts


class Timed:
    """What a stream yields; and afterwards the seconds without those of the first AT_ONCE pieces,
    in which kernels are loaded."""

    def __init__(self, stream: Iterator[list[str]]) -> None:
        self.stream = stream
        self.seconds = 0.0

    def __iter__(self) -> Iterator[list[str]]:
        yield from itertools.islice(self.stream, AT_ONCE)
        began = compiled.clock()
        yield from self.stream
        self.seconds = compiled.clock() - began


def count_ids(pieces: Sequence[str], most: int) -> int:
    """Return how many ids a text has, of which at most so many make pieces: up to the last piece
    that is shown.  A piece after them is what was held back."""
    positions = [n for n, piece in enumerate(pieces[:most], 1) if piece]
    return max(positions, default=0)


if __name__ == "__main__":
    main()
