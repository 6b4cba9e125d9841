"""Convert a model from one program's files to another's:  python -m model.convert FROM TO

FROM is a checkpoint (ckpt.npz, or the folder of a run), a .safetensors file, a folder of Hugging
Face (config.json, *.safetensors, tokenizer.json), a .gguf file, or nanoGPT's ckpt.pt, beside its
meta.pkl.

TO is a file that ends in .npz or .safetensors, or else a new folder.  A checkpoint goes into a
folder as Hugging Face's classes read it; all else becomes the ckpt.npz of a folder, for
python -m model.sample, model.look and train.py.

    python -m model.convert out out_hf
    python -m model.convert smollm2.gguf out_smol

What is written is read back, and all numbers are compared, before it takes its name.
"""
import argparse
import contextlib
import dataclasses
import importlib
import math
import os
import pathlib
import shlex
import shutil
import sys
import types
from collections.abc import Iterator

import numpy as np

from data.tokenizer import CharTokenizer
from model.convert.tokens import TokenTokenizer
from model.command import (AtOnce, Parser, answering, flag, number_of, prepare_output, scaled,
                           announced_if_slow)
from model.convert.found import Found, FormatError
from model.checkpoint import BEST, CheckpointError
from model.files import remove_if_left
from model.transformer import parameter_shapes

# The reader of a file by the end of its name; else by its first bytes.
ENDINGS = {".npz": "checkpoint", ".safetensors": "safetensors", ".gguf": "gguf", ".pt": "nanogpt",
           ".pth": "nanogpt"}
BEGINNINGS = {b"GGUF": "gguf", b"PK\3\4": "nanogpt"}
WITH_TOKENIZER = ("checkpoint", "safetensors")
PART = ".convert.{}.part"       # what the process of this number has not ended
IN_A_FOLDER = {"config.json": "hugging_face", BEST: "checkpoint", "ckpt.pt": "nanogpt"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command, beside FROM and TO."""
    tokenizer: str = flag(None, "the tokenizer.json of a model whose file or folder has none")


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    prepare_output()
    parser = Parser("python -m model.convert", __doc__, Settings)
    parser.usage = "python -m model.convert FROM TO [--tokenizer FILE]"
    for name in ("FROM", "TO"):
        parser.add_argument(name, help=argparse.SUPPRESS)     # the text above explains it
        parser.fields[name] = parser.fields["tokenizer"]    # a name, too
    given = parser.given(argv)
    with answering("model.convert"), AtOnce():
        try:
            convert(pathlib.Path(given["FROM"]), pathlib.Path(given["TO"]), given.get("tokenizer"))
        except KeyboardInterrupt:
            print("\nstopped; nothing was written", file=sys.stderr)
            raise
        sys.stdout.flush()


def convert(source: pathlib.Path, target: pathlib.Path, tokenizer: str | None = None) -> None:
    """Convert, and say what was read and written."""
    path, format = recognised(source)
    if tokenizer and format in WITH_TOKENIZER:
        raise FormatError(f"{path} has its own vocabulary; leave out --tokenizer")
    check_free(target)
    with announced_if_slow(f"reading {path}"):
        found = reader(format).read(path, **{"tokenizer": tokenizer} if tokenizer else {})
    print(f"read        {path}, a {found.kind}\n{described(found)}", flush=True)
    into, format = destination(found, target)
    with appearing(target) as aside:
        written = aside / into.relative_to(target)
        if into == target / BEST or format == "hugging_face":
            aside.mkdir()
        with announced_if_slow(f"writing {into}"):
            reader(format).write(written, found)
        try:
            back = reader(format).read(written)
        except CheckpointError as error:
            if type(error.__cause__) is not ValueError:
                raise
            raise FormatError(f"{path} cannot become a checkpoint: {error.__cause__}; convert "
                              "another model") from error
        with announced_if_slow("comparing what was written with what was read"):
            numbers = compare(found, back)
        size = sum(file.stat().st_size for file in (aside, *aside.rglob("*")) if file.is_file())
    print(f"written     {into}, {scaled(size, 'B')}\n"
          f"compared    all {numbers:,} numbers, the configuration and the vocabulary, read back: "
          f"they are the same\n\nuse it:\n    {next_command(into, format, found)}")


def recognised(source: pathlib.Path) -> tuple[pathlib.Path, str]:
    """Return the file or folder that holds the model, and the name of its reader."""
    if not source.exists():
        raise FormatError(f"there is no {source}; give a file or folder that holds a model")
    if source.is_dir():
        for name, format in IN_A_FOLDER.items():
            if (source / name).exists():
                return source if format == "hugging_face" else source / name, format
        raise FormatError(f"{source} holds none of {', '.join(IN_A_FOLDER)}; give the folder of a "
                          "model, or its file")
    if not source.is_file():
        raise FormatError(f"{source} is a device or the like; give a file or a folder")
    with open(source, "rb") as file:
        first = file.read(4)
    if not first:
        raise FormatError(f"{source} is empty; give a file that holds a model")
    format = ENDINGS.get(source.suffix.lower()) or BEGINNINGS.get(first)
    if format is None:
        raise FormatError(f"{source} is of no kind that is read here: a folder of Hugging Face, or "
                          f"a file that ends in {', '.join(ENDINGS)}; give one of these")
    return source, format


def reader(format: str) -> types.ModuleType:
    """Return the module that reads a format and, unless it is only read, writes it."""
    return importlib.import_module(f"model.convert.{format}")


def destination(found: Found, target: pathlib.Path) -> tuple[pathlib.Path, str]:
    """Return the file or folder to write, and its format."""
    if target.suffix.lower() in (".npz", ".safetensors"):
        return target, ENDINGS[target.suffix.lower()]
    if target.suffix.lower() in (*ENDINGS, ".bin", ".onnx"):
        raise FormatError(f"{target} would be a file of a kind that is not written; give a name "
                          "that ends in .npz or .safetensors, or that of a folder")
    if found.kind == "checkpoint":
        return target, "hugging_face"
    return target / BEST, "checkpoint"


def check_free(target: pathlib.Path) -> None:
    """Refuse to write over a file or into a folder that holds something, but for what a conversion
    has not ended."""
    if target.is_dir() and not all(path.match(PART.format("*")) for path in target.iterdir()):
        raise FormatError(f"{target} is a folder that holds something, and nothing is written over "
                          "it; give another name")
    if target.is_dir() and target.suffix.lower() in ENDINGS or (
            os.path.lexists(target) and not target.is_dir()):
        raise FormatError(f"{target} is there already, and nothing is written over it; give "
                          "another name, or remove it first")


@contextlib.contextmanager
def appearing(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path on the disk of `target` to write a file or a folder at, which takes that name
    once it is complete.  If anything goes wrong, nothing is left."""
    there = target if target.is_dir() else next(
        folder for folder in target.absolute().parents if folder.exists())
    scratch = there / PART.format(os.getpid())
    aside = scratch / "whole"
    for part in there.glob(PART.format("*")):
        remove_if_left(part)
    try:
        scratch.mkdir()
        yield aside
        check_free(target)              # something may have come meanwhile
        if target.is_dir():             # it stays: it may be the current folder, a link or a disk
            for path in sorted(aside.iterdir()):
                os.rename(path, target / path.name)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(aside, target)
    except OSError as error:
        if error.filename and str(scratch) in str(error.filename):
            error.filename = str(target)        # the name that the user knows
        raise
    except ValueError as error:
        raise FormatError(str(error).replace(str(aside), str(target))) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def described(found: Found) -> str:
    """Return what a model is, in lines."""
    c = found.config
    numbers = sum(math.prod(shape) for _, shape in parameter_shapes(c))
    heads = number_of(c.n_head, "head")
    if c.kv_heads < c.n_head:
        heads += f" ({c.kv_heads} of keys and values)"
    lines = [f"model       {numbers:,} parameters: {number_of(c.n_layer, 'layer')}, {heads}, "
             f"{number_of(c.n_embd, 'channel')}, block of {c.block_size:,}",
             f"{'':12}{c.position} positions, {c.norm} norm, {c.activation} MLPs of {c.inner:,}"
             + ("" if c.tied else ", an output of its own"),
             f"vocabulary  {number_of(found.tokenizer.vocab_size, found.tokenizer.unit)}"]
    if idle := sum(not text for text in found.tokenizer.vocabulary):
        lines[-1] += f"; the tokenizer has no text for {idle:,} of them"
    return "\n".join(lines + [f"{'':12}{line}" for line in found.said])


def compare(found: Found, back: Found) -> int:
    """Return how many numbers a model has; refuse one that has not come back as it was."""
    problem = None
    if back.config != found.config:
        problem = "another configuration"
    elif known(back.tokenizer) != known(found.tokenizer):
        problem = "another vocabulary"
    elif list(back.weights) != list(found.weights):
        problem = "other names"
    if problem:
        raise FormatError(f"what was written came back with {problem}, so nothing is kept; this is "
                          "a mistake of this program")
    numbers = 0
    for name, a in found.weights.items():
        b = back.weights[name]
        if a.shape != b.shape or a.dtype != b.dtype or not same_bits(a, b):
            raise FormatError(f"what was written came back with other numbers in {name}, so "
                              "nothing is kept; have the disk looked at")
        numbers += a.size
    return numbers


def known(tokenizer: CharTokenizer | TokenTokenizer) -> tuple:
    """Return all that makes a tokenizer what it is."""
    if isinstance(tokenizer, CharTokenizer):
        return (tokenizer.vocabulary,)
    return tokenizer.json, tokenizer.end, tokenizer.vocab_size


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two float32 arrays of one shape are equal to the bit."""
    return np.array_equal(*(np.ascontiguousarray(x).view(np.uint32) for x in (a, b)))


def next_command(into: pathlib.Path, format: str, found: Found) -> str:
    """Return what to do with what was written."""
    name = shlex.quote(str(into))
    if format == "hugging_face":
        vocabulary = found.tokenizer.vocabulary
        start = "\n" if "\n" in vocabulary else vocabulary[0]
        code = ("from transformers import pipeline; print(pipeline('text-generation', "
                f"{str(into)!r})({start!r}, do_sample=False, max_new_tokens=50))")
        special = any(mark in code for mark in ('"', "$", "`", "!", r"\\"))
        return "python -c " + (shlex.quote(code) if special else f'"{code}"')
    if format == "safetensors":
        return (f"python -m model.convert {name} "
                + shlex.quote(str(into.with_name(f"out_{into.stem}"))))
    if into.name == BEST:
        return f"python -m model.sample --out_dir {shlex.quote(str(into.parent))}"
    return f"python train.py --init_from {name} --data my_text.txt"


if __name__ == "__main__":
    main()
