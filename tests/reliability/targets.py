"""Input that comes from outside the program, each kind as bytes that a fuzzer can change.

A target takes bytes, does with them what the program does, and returns "accepted" or "refused".  It
raises if the answer was not plain: another error than documented, an error of several lines, or
a result that is wrong.
"""
import contextlib
import functools
import io
import json
import pathlib
import tempfile
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import data
import train
from data.tokenizer import MissingLibrary, UnknownCharacterError
from model import CharTokenizer, Transformer, TransformerConfig, sample
from model.checkpoint import Checkpoint
from model.convert import hugging_face, nanogpt
from model.convert.model_file import FormatError, ModelFile, shapes_of
from model.count import __main__ as count
from model.folder import Folder
from model.interactive import session
from model.look import __main__ as look
from model.replay import __main__ as replay


class Target(NamedTuple):
    """A check of some bytes, and bytes to begin with."""
    check: Callable[[bytes], str]
    seeds: Callable[[], list[bytes]]
    most: int                                   # bytes of an input
    words: Callable[[], list[bytes]] = list     # which a fuzzer would not find by itself


def in_a_line(error):
    """Return "refused" if the message is one line."""
    assert str(error) and "\n" not in str(error), f"an answer of several lines: {error}"
    return "refused"


# Models of other programs: files of which one is replaced, or a part of one.  A part is a file, its
# content, and None; or a file, a part of it, and what makes a file of such a part.

FOLDER = ("config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json")
NANOGPT = pathlib.Path(__file__).parents[1] / "reference" / "nanogpt"


@functools.cache
def hugging_face_parts():
    """Return the files of a folder with a small model of Llama's parts, and the tensors' header."""
    config = TransformerConfig(3, block_size=2, n_layer=1, n_head=1, n_embd=2, position="rotary",
                               norm="rms_gain", activation="swiglu", n_inner=1)
    found = ModelFile("", config, Transformer(config).state_dict(), CharTokenizer("ab\n"))
    with tempfile.TemporaryDirectory() as folder:
        hugging_face.write(folder, found)
        files = {name: pathlib.Path(folder, name).read_bytes() for name in FOLDER[:3]}
    tensors = files[FOLDER[2]]
    start = 8 + int.from_bytes(tensors[:8], "little")
    header = tensors[8:start]
    index = {"weight_map": dict.fromkeys([*json.loads(header)][1:], FOLDER[2])}
    return [*((name, content, None) for name, content in files.items()),
            (FOLDER[3], json.dumps(index).encode(), None),
            (FOLDER[2], header,
             lambda other: len(other).to_bytes(8, "little") + other + tensors[start:])]


@functools.cache
def nanogpt_parts():
    """Return a checkpoint of nanoGPT, the pickle in it, and its meta.pkl."""
    with zipfile.ZipFile(NANOGPT / "ckpt.pt") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}

    def with_pickle(content):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as whole:
            for name, member in (members | {"ckpt/data.pkl": content}).items():
                whole.writestr(zipfile.ZipInfo(name), member)
        return file.getvalue()
    return [("ckpt.pt", (NANOGPT / "ckpt.pt").read_bytes(), None),
            ("ckpt.pt", members["ckpt/data.pkl"], with_pickle),
            ("meta.pkl", (NANOGPT / "meta.pkl").read_bytes(), None)]


def model_of_others(parts, optional, read):
    """Return a target that replaces a part: which one, the first byte says.  `optional` files are
    only there if they are that part."""
    def check(content):
        name, _, make = parts()[(content[:1] or b"\0")[0] % len(parts())]
        files = {file: whole for file, whole, of_a_part in parts()
                 if not of_a_part and file not in optional}
        files[name] = make(content[1:]) if make else content[1:]
        with tempfile.TemporaryDirectory() as folder:
            for file, whole in files.items():
                pathlib.Path(folder, file).write_bytes(whole)
            try:
                found = read(pathlib.Path(folder))
                arrays = dict(found.weights)        # which may be read only now
            except (FormatError, MissingLibrary) as error:
                return in_a_line(error)
        assert {name: a.shape for name, a in arrays.items()} == shapes_of(found.config)
        assert all(a.dtype == np.float32 for a in arrays.values())
        assert found.tokenizer.vocab_size == found.config.vocab_size
        return "accepted"
    return Target(check, lambda: [bytes([i]) + whole for i, (_, whole, _) in enumerate(parts())],
                  60_000)


# Texts to make a vocabulary of, and to encode by it

def tokenizer(content):
    """Make a vocabulary of the first half of a text, and encode the second."""
    text = content.decode("utf-8", "surrogateescape")
    known, other = text[:len(text) // 2], text[len(text) // 2:]
    try:
        found = CharTokenizer(known)
    except ValueError as error:
        assert not known
        return in_a_line(error)
    assert found.vocabulary == "".join(sorted(set(known))) and found.decode(
        found.encode(known)) == known
    unknown = [i for i, c in enumerate(other) if c not in known]
    try:
        ids = found.encode(other)
        assert not unknown and found.decode(ids) == other
    except UnknownCharacterError as error:
        assert f"at position {unknown[0]} " in str(error) and ascii(other[unknown[0]])
        in_a_line(error)
    try:
        found.decode(np.frombuffer(content[:len(content) // 8 * 8], np.int64))
    except ValueError as error:
        in_a_line(error)
    return "refused" if unknown else "accepted"


def texts():
    """Return ASCII, all lengths of UTF-8, and a lone surrogate."""
    return [b"ab\nba", "aé漢🙂".encode() * 2, b"a\xed\xa0\x80a", bytes(8), "aAbB\u0301’".encode(),
            bytes(range(256))]


# Files given with --data

def text(content):
    """Read a file of these bytes; the first is the block size."""
    block_size = content[0] % 8 + 1 if content else 1
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "file")
        path.write_bytes(content[1:])
        try:
            found = data.Text.read(str(path))
        except data.TextError as error:
            return in_a_line(error)
    train, val = found.parts()
    assert found.characters == train + val != "" and "\r" not in train + val
    assert found.tokenizer.decode(found.val) == val and len(found.digest) == 64
    for problem in found.problems(block_size):
        return in_a_line(problem)
    x, y = found.windows(block_size)
    assert np.array_equal(y[y != data.IGNORE], found.val[1:]) and x.shape == y.shape
    data.random_batch(found.train, 2, block_size, np.random.default_rng(0))
    data.repetition_warning(train, val)
    counted = data.ngram_losses(found.train, found.val, found.tokenizer.vocab_size, orders=2)
    assert np.isfinite(counted).all()
    return "accepted"


def files():
    """Return texts with line ends and marks of all kinds, and files that are no text."""
    return [b"\0" + b"to be or not to be\n" * 8, b"\3\xef\xbb\xbf" + b"a\r\nb\rc\n" * 20,
            "\1aé漢🙂".encode() * 10, b"\0" + "text".encode("utf-16"), b"\2\x93NUMPY\1\0", b"\1\xff"]


# Words of the command line

COMMANDS = {"train": (train, ("train",)),
            "sample": (sample, ("score", "write")),
            "look": (look, ("write", "show")), "count": (count, ()),
            "replay": (replay, ("replay",))}


def flags(content):
    """Give a command its words, up to where it would begin.  A NUL separates the words; the first
    names the command."""
    prepare()
    command, *words = content.decode("utf-8", "surrogateescape").split("\0")
    module = COMMANDS.get(command, (train,))[0]
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            module.main(words)
        except SystemExit as end:
            if isinstance(end.code, str):
                return in_a_line(end.code)
            for line in err.getvalue().split("\n")[:-1]:
                assert line.startswith(("usage: ", "warning")) or ": error: " in line, line
            return "refused" if end.code else "accepted"
    return "accepted"


@functools.cache
def prepare():
    """Make each command end where it would begin, read no file, and find a run to resume."""
    for module, begins in COMMANDS.values():
        module.Parser = functools.cache(module.Parser)      # which takes a millisecond to make
        for name in begins:
            setattr(module, name, lambda *_, **__: None)
    model = Transformer(TransformerConfig(3, 2, 1, 1, 2))
    text = data.Text("to be or not to be\n" * 20)
    training = {"settings": {"n_layer": 1, "n_head": 1, "n_embd": 2, "block_size": 2},
                "text": text.digest}
    run = Checkpoint(model, CharTokenizer("abc"), training, {})
    data.read_texts = lambda words: data.Texts(text.characters, [("a", len(text))], [])
    Folder.resume = lambda *_, **__: run
    sample.load_checkpoint = count.load_checkpoint = lambda *_: run
    sample.write = session.continue_typed = lambda *_: (0, 0.0)


def words():
    """Return every flag."""
    return [option.encode() for module, _ in COMMANDS.values()
            for option in module.Parser("x", "", module.Settings).flags]


def command_lines():
    """Return command lines with right flags, and with mistakes."""
    lines = ["train", "train --max_iters 3 --data a.txt --bias --no-explain --n_head=2",
             "train --init_from resume --n_layer 2 --min_lr 1e-3 --dropout .5", "train --profile",
             "replay --out_dir out", "train --n_embd 30 --n_kv_head 3 --position rotary",
             "train --max_itres 3 word --seed -1 --learning_rate nan --beta1 inf", "train --help",
             "sample --start a --top_k 5 --top_p 0.5 --num_samples 2 --stop b", "sample --score a",
             "sample --interactive --temperature 0 --no-cache --seed 1", "look -o a.html --text a",
             "look a b --text c", "look --no-live", "count --out_dir out",
             "count --n_layer 96 --n_head 96 --n_embd 12288 --vocab_size 50257 --position learned",
             "train --batch_size 100000000000000000000000 --eval_iters 0 --threads 1"]
    return [line.replace(" ", "\0").encode() for line in lines]


TARGETS = {"folder": model_of_others(hugging_face_parts, FOLDER[3:], hugging_face.read),
           "nanogpt": model_of_others(nanogpt_parts, (), lambda folder: nanogpt.read(
               folder / "ckpt.pt")),
           "tokenizer": Target(tokenizer, texts, 400), "data": Target(text, files, 2_000),
           "flags": Target(flags, command_lines, 120, words)}
