"""Import and export models:  python -m model.convert FROM TO

FROM is a checkpoint (ckpt.npz, or the folder of a run), a .safetensors file, a folder of Hugging
Face (config.json, *.safetensors, tokenizer.json), a .gguf file, or nanoGPT's ckpt.pt, beside its
meta.pkl.

TO is a file that ends in .npz, .safetensors or .gguf, or else a new folder.  A checkpoint goes
into a folder as Hugging Face's classes read it; all else becomes the ckpt.npz of a folder, for
python -m model.sample, model.look and train.py.

    python -m model.convert out out_hf
    python -m model.convert out model.gguf --as q8_0
    python -m model.convert smollm2.gguf out_smol

An adapter, as train.py --lora trains it, becomes a .gguf file that llama.cpp loads beside its base,
or a folder for PEFT; with --merge, base and adapter become one model in any of the formats.

    python -m model.convert out_on adapter.gguf
    python -m model.convert out_on whole.gguf --merge --as q8_0
    python -m model.convert from_peft out_theirs --base out_smol

The output is read back and all numbers are compared before it is renamed into place.
"""
import argparse
import contextlib
import dataclasses
import errno
import json
import math
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

from data.files import remove_left, rename
from minigrad.machine import check_fits
from minigrad.words import number_of, scaled, shown
from model.answers import announced_if_slow, answering, command_line, quoted, started_as, tell
from model.checkpoint import BEST, CheckpointError, save_checkpoint
from model.command import Parser
from model.convert import (adapter, checkpoint, from_peft, gguf, hugging_face, nanogpt,
                           safetensors, to_gguf)
from model.convert.model_file import (FormatError, ModelFile, check_finite, same_bits,
                                      shapes_of)
from model.count.sizes import parameters
from model.interrupts import Interrupts
from model.options import flag
from model.report import describe_model

# The format of a file, by how its name ends or else by its first bytes; of a folder, by its files.
ENDINGS = {".npz": checkpoint, ".safetensors": safetensors, ".gguf": gguf, ".pt": nanogpt,
           ".pth": nanogpt}
WRITTEN = {".npz": checkpoint, ".safetensors": safetensors, ".gguf": to_gguf}
FIRST_BYTES = {b"GGUF": gguf, b"PK\3\4": nanogpt}
IN_A_FOLDER = {"config.json": hugging_face, BEST: checkpoint, "ckpt.pt": nanogpt}
AT_ONCE = 3     # copies of an array, as float32, that are held while it is converted or compared
START = "The "
PART = ".convert.{}.part"       # the unfinished output of the process with this number


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command, beside FROM and TO."""
    tokenizer: str = flag(None, "the tokenizer.json of a model whose file or folder has none")
    as_: str = flag(None, f"how a .gguf file stores matrices: {', '.join(to_gguf.KINDS)}",
                    unset="f16")
    merge: bool = flag(False, "write base and adapter as one model")
    base: str = flag(None, "of an adapter in PEFT's folder: the checkpoint of the model that it "
                           "is for")


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    parser = Parser("python -m model.convert", __doc__, Settings)
    parser.usage = ("python -m model.convert FROM TO [--tokenizer FILE] [--as KIND] [--merge] "
                    "[--base OUT]")
    for name in ("FROM", "TO"):
        parser.add_argument(name, action="append", help=argparse.SUPPRESS)   # explained above
        parser.fields[name] = parser.fields["tokenizer"]      # it is the name of a file, too
    given = {name: os.path.expanduser(word) if isinstance(word, str) else word
             for name, word in parser.parse(argv).items()}
    with answering("model.convert"), Interrupts(at_once=True):
        try:
            convert(pathlib.Path(given.pop("FROM")), pathlib.Path(given.pop("TO")), **given)
        except KeyboardInterrupt:
            print("\nstopped; nothing was written", file=sys.stderr)
            raise


def convert(source: pathlib.Path, target: pathlib.Path, tokenizer: str | None = None,
            as_: str | None = None, merge: bool = False, base: str | None = None) -> None:
    """Convert, and print what was read and written."""
    is_peft = (source / adapter.PEFT_CONFIG).is_file()
    if is_peft != bool(base):
        raise FormatError(f"{source} is an adapter of PEFT; name the checkpoint of its base with "
                          "--base" if is_peft else
                          f"--base is for a folder with {adapter.PEFT_CONFIG}, and {source} is "
                          "none; leave it out")
    if base:
        import_adapter(source, target, base)
        return
    path, format = recognize(source)
    if tokenizer and format in (checkpoint, safetensors):
        raise FormatError(f"{path} has its own vocabulary; leave out --tokenizer")
    check_free(target)
    output, output_format = destination(format, target)
    if as_ and as_ not in to_gguf.KINDS:
        raise FormatError(f"--as is one of {', '.join(to_gguf.KINDS)}, not {shown(as_)}; for "
                          "other kinds write f16, and call llama-quantize of llama.cpp")
    if as_ and output_format is not to_gguf:
        raise FormatError(f"--as {as_} is for a .gguf file; leave it out, or give TO such a name")
    with announced_if_slow(f"reading {path}"):
        model = format.read(path, **{"tokenizer": tokenizer} if tokenizer else {})
    with model.file:
        if merge and not model.adapter:
            raise FormatError(f"{path} is a whole model, and --merge is for an adapter; leave it "
                              "out")
        if model.adapter and not merge:
            if as_:
                raise FormatError(f"--as {as_} is for a whole model; leave it out, or give --merge")
            convert_adapter(model, path, target)
            return
        largest = max(map(math.prod, shapes_of(model.config).values()))
        check_fits(AT_ONCE * 4 * largest, f"the largest weights in {path}",
                   "use a machine with more")
        tell(f"read        {path}, a {model.kind}", describe(model))
        with renamed_when_whole(target) as part:
            written = part / output.relative_to(target)
            if output_format is hugging_face or written != part:
                part.mkdir()
            with announced_if_slow(f"writing {output}"):
                how = [as_] if as_ else []
                held = output_format.write(written, model._replace(name=output.stem), *how)
            read_back(written, output_format, model, path, held.agree)
            loss = []
            if merge:
                loss = [adapter.losses(model.adapter, output_format.read(written))]
            size = sum(file.stat().st_size for file in (part, *part.rglob("*")) if file.is_file())
    within = held.rounded and f", as {held.rounded} rounds"
    tell(*held.notes, f"written     {output}, {scaled(size, 'B')}",
         f"compared    all {parameters(model.config):,} numbers, the configuration and the "
         f"vocabulary, read back: they are the same{within}", *loss,
         "", "use it:", f"    {next_command(output, output_format, model)}")


def import_adapter(source: pathlib.Path, target: pathlib.Path, base: str) -> None:
    """Write an adapter from PEFT's folder as a checkpoint, and print what was read and written."""
    check_free(target)
    model, tokenizer = from_peft.read(source, base)
    output, _ = destination(from_peft, target)
    with renamed_when_whole(target) as part:
        save_checkpoint(part / output.relative_to(target), model, tokenizer)
    tell(f"read        {source}, an adapter of {model.config.base}",
         f"written     {output}: rank {model.config.lora}, of {model.config.lora_layers}",
         "", "use it:", f"    {command_line('model.sample', '--out_dir', output)}")


def convert_adapter(model: ModelFile, path: pathlib.Path, target: pathlib.Path) -> None:
    """Write the adapter that a model was read with, and print what was read and written."""
    base = model.adapter.config.base
    format = adapter.format_of(_ending(target))
    with renamed_when_whole(target) as part:
        if format is adapter.Peft:
            part.mkdir()
        format.write(part, model)
        size = sum(file.stat().st_size for file in (part, *part.rglob("*")) if file.is_file())
    use = f"llama-completion -m BASE.gguf --lora {quoted([str(target)])} -no-cnv -p 'The '"
    if format is adapter.Peft:
        use = f"PeftModel.from_pretrained(MODEL, {str(target)!r})"
    tell(f"read        {path}, an adapter of {base}",
         f"written     {target}, {scaled(size, 'B')}",
         f"compared    all {adapter.numbers(model.adapter):,} numbers, read back, are the same",
         "", "use it, with the base as it was:", f"    {use}")


def read_back(written: pathlib.Path, format: ModuleType, model: ModelFile, path: pathlib.Path,
              agree: Callable = same_bits) -> None:
    """Compare what was written with the model that it should hold, which was read from a path.  For
    `agree` see `Held`."""
    try:
        back = format.read(written)
    except CheckpointError as error:        # its weights may be nan
        raise FormatError(f"{path} cannot become a checkpoint: {error.__cause__}") from error
    except FormatError as error:
        raise FormatError(f"nothing is kept, as what was written cannot be read back: {error}; "
                          "this is a mistake of this program") from error
    # What is open is not renamed on Windows.
    with back.file, announced_if_slow("comparing what was written with what was read"):
        compare(model, back, agree)


def recognize(source: pathlib.Path) -> tuple[pathlib.Path, ModuleType]:
    """Return the file or folder that holds the model, and the module that reads its format."""
    if source.is_dir():
        for name, format in IN_A_FOLDER.items():
            if (source / name).exists():
                return source if format is hugging_face else source / name, format
        raise FormatError(f"{source} holds none of {', '.join(IN_A_FOLDER)}; give the folder of a "
                          "model, or its file")
    if not source.exists():
        raise FormatError(f"there is no {source}; give a file or folder that holds a model")
    format = None
    if source.is_file():        # not a device, which may have no end
        with open(source, "rb") as file:
            format = ENDINGS.get(_ending(source)) or FIRST_BYTES.get(file.read(4))
    if not format:
        raise FormatError(f"{source} is of an unknown format; give a folder of Hugging Face, or a "
                          f"file that ends in {', '.join(ENDINGS)}")
    return source, format


def _ending(path):
    """Return how the name of a file ends, such as ".gguf", which may be the whole name."""
    return (path.suffix or path.name).lower()


def destination(format: ModuleType, target: pathlib.Path) -> tuple[pathlib.Path, ModuleType]:
    """Return the file or folder to write for a model of a format, and the module to write it."""
    ending = _ending(target)
    if ending in WRITTEN:
        return target, WRITTEN[ending]
    if ending in (*ENDINGS, ".bin", ".onnx"):
        raise FormatError(f"{target} would be a file of a format that is not written; give a name "
                          "that ends in .npz, .safetensors or .gguf, or that of a folder")
    if format is checkpoint:
        return target, hugging_face
    return target / BEST, checkpoint


def check_free(target: pathlib.Path) -> None:
    """Refuse to write over a file or into a folder that holds something other than the unfinished
    output of a conversion."""
    fillable = target.is_dir() and _ending(target) not in ENDINGS and all(
        path.match(PART.format("*")) for path in target.iterdir())
    if os.path.lexists(target) and not fillable:
        raise FormatError(f"{target} is there already, and nothing is written over it; give "
                          "another name")


@contextlib.contextmanager
def renamed_when_whole(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path at which to write a file or a folder.  It is renamed to `target`, on the same
    disk, if there is no error; otherwise nothing is left."""
    there = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    scratch = there / PART.format(os.getpid())
    part = scratch / "whole"
    remove_left(there, PART.format("*"))
    try:
        scratch.mkdir()
        yield part
        check_free(target)              # something may have come meanwhile
        if target.is_dir():             # it stays: it may be the current folder, a link or a disk
            for path in part.iterdir():
                rename(path, target / path.name)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            rename(part, target)
    except OSError as error:
        if error.errno is None:         # NumPy wrote fewer bytes than it was given
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error
        if error.filename is None or str(scratch) in str(error.filename):
            error.filename = str(target)        # the name that the user knows
        raise
    except ValueError as error:
        if str(scratch) not in str(error):
            raise
        said = str(error).replace(str(part), str(target)).replace(str(scratch), str(target))
        raise FormatError(said) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def describe(model: ModelFile) -> str:
    """Describe a model in lines."""
    c = model.config
    tokenizer = model.tokenizer
    lines = [f"model       {describe_model(c, parameters(c))}",
             f"{'':12}{c.position} positions, {c.norm} norm, "
             f"{c.activation} MLPs of {c.resolved().n_inner:,}"
             + ("" if c.tied else ", an output of its own"),
             f"vocabulary  {number_of(tokenizer.vocab_size, tokenizer.unit)}"]
    if idle := sum(not text for text in tokenizer.vocabulary):
        lines[-1] += f"; the tokenizer has no text for {idle:,} of them"
    return "\n".join(lines + [f"{'':12}{note}" for note in model.notes])


def compare(model: ModelFile, back: ModelFile, agree: Callable = same_bits) -> None:
    """Refuse a model that was not read back as it was, or whose numbers are no numbers."""
    def parts(found):
        text = getattr(found.tokenizer, "library_json", "null")
        vocabulary = json.loads(text) or found.tokenizer.vocabulary
        return found.config, list(found.weights), vocabulary, {*found.tokenizer.ends}
    if parts(model) != parts(back):
        raise FormatError("what was written came back with another configuration, vocabulary or "
                          "names, so nothing is kept; this is a mistake of this program")
    for name, a in model.weights.items():
        check_finite(name, a)
        if not agree(name, a, back.weights[name]):
            raise FormatError(f"what was written came back with other numbers in {name}, so "
                              "nothing is kept; check the disk")


def next_command(path: pathlib.Path, format: ModuleType, model: ModelFile) -> str:
    """Return a command that uses what was written."""
    if format is to_gguf:
        return f"llama-completion -m {quoted([str(path)])} -no-cnv -p {quoted([START])}"
    if format is safetensors:
        return command_line("model.convert", path, path.with_name(f"out_{path.stem}"))
    if path.name == BEST:
        return command_line("model.sample", "--out_dir", path.parent)
    if format is checkpoint:
        return command_line("train", "--init_from", path, "--data", "my_text.txt")
    vocabulary = model.tokenizer.vocabulary
    start = "\n" if "\n" in vocabulary else vocabulary[0]
    code = ("from transformers import pipeline; print(pipeline('text-generation', "
            f"{str(path)!r})({start!r}, do_sample=False, max_new_tokens=50))")
    # Windows' shell knows double quotes only.
    special = re.search(r'["$`!]|\\\\', code)
    python, *_ = started_as()
    return f"{quoted([python])} -c " + (quoted([code]) if special else f'"{code}"')


if __name__ == "__main__":
    main()
