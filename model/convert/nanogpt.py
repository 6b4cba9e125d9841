"""A checkpoint of nanoGPT: ckpt.pt, and meta.pkl with the characters of its text.

Both are pickles, and a pickle is a program that can have any function of any module called.  The
first is read by PyTorch, which calls nothing but what tensors need (weights_only), the second by
`PlainData`, which calls nothing.

Source: model.py and train.py of https://github.com/karpathy/nanoGPT.
"""
import io
import pathlib
import pickle
import re
import zipfile
from dataclasses import replace
from functools import partial

from data.files import AnyPath
from data.tokenizer import CharTokenizer
from minigrad.words import number_of, shown
from model.convert.families import GPT2, our_parameters
from model.convert.model_file import (FormatError, ModelFile, Stored, explain, require,
                                      text_of)
from model.convert.tokens import TokenTokenizer
from model.config import TransformerConfig

SETTINGS = {"n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout"}
FAMILY = GPT2._replace(conv1d=False)
COMPILED = "_orig_mod."         # before each name, where torch.compile made the model
TOKENS, HEAD, MASK = "transformer.wte.weight", "lm_head.weight", ".attn.bias"
END = "<|endoftext|>"           # of GPT-2's tokenizer
LARGEST = 1 << 21               # bytes of meta.pkl


# The reader that is written in Python.  In the one in C, five bytes can make the memo grow to 2^32
# places.
class PlainData(pickle._Unpickler):
    """Reads a pickle of numbers, texts, lists and dicts.  Nothing is imported or called."""

    def find_class(self, module: str, name: str) -> object:
        raise FormatError(f"it wants {shown(f'{module}.{name}')}, which is no plain data")


def read(path: AnyPath, tokenizer: AnyPath | None = None) -> ModelFile:
    """Read a checkpoint of nanoGPT; nothing in it is executed.  PyTorch must be installed.

    A model of tokens needs `tokenizer`, a tokenizer.json.  The characters of others are in
    meta.pkl, beside the checkpoint or in data/<dataset>/ of a folder above.

    Raises
    ------
    FormatError : the file is damaged, or holds another model, or its pickle names what tensors do
        not need; or there is no tokenizer.
    MissingLibrary : PyTorch is not installed.
    """
    path = pathlib.Path(path)
    torch = require("torch", "interop", f"{path} is a file of PyTorch")
    explained = partial(explain, f"{path} is not a checkpoint of nanoGPT that can be read",
                        "use another, or train and save it again there", Exception)
    with explained():
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():        # PyTorch compares no checksums
                raise FormatError(f"its member {shown(damaged)} is damaged")
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except pickle.UnpicklingError as error:     # its text advises to load the file all the same
            wanted = re.findall(r"GLOBAL ([\w.]+)", str(error)) or ["something else"]
            raise FormatError(f"it is damaged, or wants {shown(wanted[0])}, and not tensors and "
                              "plain data alone") from error
        config, tensors = _model(content, path.stat().st_size, torch.Tensor)
        stored = {name: Stored(tensor.shape, explained()(partial(_numbers, tensor)))
                  for name, tensor in tensors.items()}
        weights = our_parameters(config, FAMILY, stored)
    notes = []
    if type(iterations := content.get("iter_num")) is int:
        notes.append(f"written after {number_of(iterations, 'iteration')}")
    place = tokenizer or _meta_pkl(path, content)
    if tokenizer:
        tokens = _tokens(path, place, config.vocab_size)
    else:
        tokens = _characters(place, config.vocab_size)
    notes.append(f"its {tokens.unit}s are those of {place}")
    return ModelFile("nanoGPT checkpoint", config, weights, tokens, notes)


def _numbers(tensor):
    return tensor.detach().float().numpy()


def _model(content, size, kind):
    """Return the configuration, and the tensors, which are of this kind, by nanoGPT's names.  The
    file has so many bytes."""
    if not isinstance(content, dict) or not all(isinstance(content.get(key), dict)
                                                for key in ("model", "model_args")):
        raise FormatError("it has no model and model_args, dicts that nanoGPT's train.py writes")
    tensors = {}
    for name, tensor in content["model"].items():
        if not name.endswith(MASK):     # of attention without a fused kernel; not a weight
            if not isinstance(tensor, kind):
                raise FormatError(f"{shown(name)} of its model is no tensor")
            tensors[name.removeprefix(COMPILED)] = tensor
    arguments = content["model_args"]
    if wrong := SETTINGS ^ arguments.keys():
        raise FormatError(f"{shown(min(wrong))} of its model_args is missing, or unknown to "
                          "nanoGPT's GPTConfig")
    config = TransformerConfig(**arguments)
    if HEAD in tensors and TOKENS in tensors and tensors[HEAD].is_set_to(tensors[TOKENS]):
        del tensors[HEAD]       # one tensor, saved by two names
    config = replace(config, tied=HEAD not in tensors)
    # Each number has 2 bytes at least, if no two weights share it.
    if 2 * sum(tensor.numel() for tensor in tensors.values()) > size:
        raise FormatError("its weights share their numbers")
    return config, tensors


def _tokens(path, given, V):
    """Return the tokenizer of V tokens in a tokenizer.json."""
    text = text_of(given)
    with explain(f"{given} is not the tokenizer.json of {path}",
                 "give the one that its text was encoded with"):
        tokens = TokenTokenizer(text, vocab_size=V)
        end = tokens.encode(END).tolist()
        tokens.end = end[0] if len(end) == 1 else None
        return tokens


def _meta_pkl(path, content):
    """Return the path of meta.pkl: beside the checkpoint, or where nanoGPT keeps its data."""
    config, folders, where = content.get("config"), [path.parent], ""
    dataset = config.get("dataset") if isinstance(config, dict) else None
    if isinstance(dataset, str) and re.fullmatch(r"[\w-]+", dataset):
        folders += [parent / "data" / dataset for parent in path.absolute().parents]
        where = f" (data/{dataset}/meta.pkl of nanoGPT)"
    for folder in folders:
        place = folder / "meta.pkl"
        if place.is_file():
            return place
    raise FormatError("a checkpoint of nanoGPT does not hold its tokenizer; put its meta.pkl"
                      f"{where} beside {path} if the model knows characters, or give the "
                      "tokenizer.json by --tokenizer if it knows tokens, such as those of GPT-2")


def _characters(meta, V):
    """Return the tokenizer of a meta.pkl, of V characters."""
    with explain(f"{meta} is not the meta.pkl of this checkpoint", "put the right one beside it",
                 Exception), open(meta, "rb") as file:
        characters = PlainData(io.BytesIO(file.read(LARGEST))).load()["itos"]
        if not isinstance(characters, dict) or characters.keys() != set(range(V)) or not all(
                isinstance(c, str) and len(c) == 1 for c in characters.values()):
            raise FormatError(f"it has no itos with a character for each of {V} ids")
        return CharTokenizer.of("".join(characters[i] for i in range(V)))
