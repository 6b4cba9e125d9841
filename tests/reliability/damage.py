"""Damage a small checkpoint: every byte, every end, every cut, and at random; none is accepted."""
import itertools
import random
import re

import minigrad as mg
from model import (CharTokenizer, CheckpointError, Transformer, TransformerConfig, load_checkpoint,
                   save_checkpoint)
from model.run import State
from tests.flags import whole

FLAGS = {"count": (whole, 100_000, "files damaged at random"),
         "every": (whole, 1, "take each N-th of the bytes, ends and cuts only")}
MOST = 8                # changes at a time
SIGNATURES = re.compile(rb"PK[\x01-\x07]{2}|\x93NUMPY")
FIELD = 46              # bytes after a signature that hold the fields
NUMBERS = (0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 10 ** 12,
           2 ** 63 - 1, 2 ** 64 - 1)


def run(options, folder):
    """Return whether each damaged file was refused in a line."""
    path = folder / "small.npz"
    save_small(path)
    content, draw, wrong = path.read_bytes(), random.Random(0), []
    assert fault(path) == "accepted"
    kinds = {"every byte of it changed": itertools.islice(changed_bytes(content, draw), 0, None,
                                                          options.every),
             "every end of zeros": (content[:size] + bytes(len(content) - size)
                                    for size in range(0, len(content), options.every)),
             "every cut": (content[:size] for size in range(0, len(content), options.every)),
             "at random": (mutated(content, draw) for _ in range(options.count))}
    print(f"a checkpoint of {len(content):,} bytes")
    for kind, files in kinds.items():
        for number, damaged in enumerate(files, 1):
            path.write_bytes(damaged)
            if found := fault(path):
                wrong.append(f"{kind}, number {number}: {found}\n")
        print(f"{kind:27} {number:,} files")
    print(f"accepted, or no plain answer {len(wrong):,}\n" + "".join(wrong[:20]), end="")
    return not wrong


def save_small(path):
    """Save a checkpoint with everything that one can hold, in few bytes."""
    tokenizer = CharTokenizer("ab\n")
    model = Transformer(TransformerConfig(tokenizer.vocab_size, 2, 1, 1, 2))
    settings = dict(data="text.txt", learning_rate=0.1, warmup_iters=1, grad_clip=1.0)
    training = dict(settings=settings, text="0" * 64, state=State(seed=0).saved())
    save_checkpoint(path, model, tokenizer, training, mg.AdamW(model.parameters()))


def fault(path):
    """Return what is wrong with the refusal of a file; "" if it is one line."""
    try:
        load_checkpoint(path)
    except CheckpointError as error:
        return "" if str(error).isprintable() else f"more than a line: {error}"
    except BaseException as error:
        return repr(error)
    return "accepted"


def changed_bytes(content, draw):
    """Yield the content with one byte changed, each in turn: all of its bits, and one bit."""
    for place, change in itertools.product(range(len(content)), (0xff, None)):
        changed = bytearray(content)
        changed[place] ^= change or 1 << draw.randrange(8)
        yield bytes(changed)


def mutated(content, draw):
    """Return the content with some random changes; it is never the same.

    A change replaces a part, anywhere or in the fields of an archive, by zeros, random bytes, a
    number that code may not expect, nothing, twice the same, or its halves exchanged; or it flips a
    bit, or cuts the content.
    """
    changed = bytearray(content)
    while changed == content:
        for _ in range(draw.randint(1, MOST)):
            fields = [found.end() for found in SIGNATURES.finditer(changed)]
            start = draw.randint(0, len(changed))
            if fields and draw.random() < 0.2:
                start = min(len(changed), draw.choice(fields) + draw.randrange(FIELD))
            end = min(len(changed), start + draw.randint(0, draw.choice((4, 64, 4096))))
            part, size = changed[start:end], draw.choice((1, 2, 4, 8))
            number = (draw.choice(NUMBERS) % 256 ** size).to_bytes(size, "little")
            half = draw.randint(0, len(part))
            kind = draw.choice(("bit", "number", "number", "replaced", "cut"))
            if kind == "bit" and part:
                changed[start] ^= 1 << draw.randrange(8)
            elif kind == "number":
                changed[start:start + size] = number
            elif kind == "cut":
                del changed[draw.choice((slice(start), slice(start, None)))]
            else:
                changed[start:end] = draw.choice((
                    bytes(len(part)), draw.randbytes(len(part)), draw.randbytes(64), b"",
                    part + part, part[half:] + part[:half]))
    return bytes(changed)
