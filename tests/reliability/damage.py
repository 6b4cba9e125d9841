"""Damage a small checkpoint: every byte of it, every cut, and at random; none may be accepted."""
import argparse
import collections
import itertools
import pathlib
import random
from collections.abc import Iterator

import minigrad as mg
from model import (CharTokenizer, CheckpointError, Transformer, TransformerConfig, load_checkpoint,
                   save_checkpoint)
from model.run import State
from tests.reliability.mutations import mutated


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The settings on the command line."""
    parser.add_argument("--count", type=int, default=100_000,
                        help="files damaged at random (default: %(default)s)")
    parser.add_argument("--damages", type=int, default=0, metavar="SEED",
                        help="of what is done to those (default: %(default)s)")


def run(options: argparse.Namespace, folder: pathlib.Path) -> bool:
    """Whether each damaged file was refused in a line."""
    path = folder / "small.npz"
    save_small(path)
    whole, before = path.read_bytes(), peak_memory()
    draw = random.Random(options.damages)
    at_random = (mutated(whole, draw) for _ in range(options.count))
    tried, wrong = collections.Counter(), []
    for kind, files in (("every byte of it changed", changed_bytes(whole, draw)),
                        ("every cut", (whole[:size] for size in range(len(whole)))),
                        ("at random", at_random)):
        for content in files:
            path.write_bytes(content)
            tried[kind] += 1
            if found := fault(path):
                wrong.append(f"{kind}, number {tried[kind]}: {found}")
    print("".join(f"{line}\n" for line in wrong[:20])
          + f"a checkpoint of {len(whole):,} bytes\n"
          + "".join(f"{kind:27} {n:,} files\n" for kind, n in tried.items())
          + f"accepted, or no plain answer {len(wrong):,}\n"
          f"most memory, beyond that before {peak_memory() - before:.1f} MB")
    return not wrong


def save_small(path: pathlib.Path) -> None:
    """A checkpoint with all that one may hold, in few bytes."""
    tokenizer = CharTokenizer("ab\n")
    model = Transformer(TransformerConfig(tokenizer.vocab_size, 2, 1, 1, 2))
    settings = dict(data="text.txt", learning_rate=0.1, warmup_iters=1, grad_clip=1.0)
    training = dict(settings=settings, text="0" * 64, state=State(seed=0).saved())
    save_checkpoint(path, model, tokenizer, training, mg.AdamW(model.parameters()))


def changed_bytes(whole: bytes, draw: random.Random) -> Iterator[bytes]:
    """Each byte by itself: all of its bits changed, and one."""
    for place, change in itertools.product(range(len(whole)), (0xff, None)):
        spoilt = bytearray(whole)
        spoilt[place] ^= change or 1 << draw.randrange(8)
        yield bytes(spoilt)


def fault(path: pathlib.Path) -> str:
    """What is wrong with how a file is refused; empty if that is done in a line."""
    try:
        load_checkpoint(path)
    except CheckpointError as error:
        return "" if str(error).isprintable() else f"more than a line: {error}"
    except BaseException as error:
        return repr(error)
    return "accepted"


def peak_memory() -> float:
    """The most that this process has held, in MB."""
    import resource         # which Windows has not
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
