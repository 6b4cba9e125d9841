"""A checkpoint of nanoGPT: ckpt.pt, and meta.pkl with the characters of its text.

Source: model.py and train.py of https://github.com/karpathy/nanoGPT.
"""
import math
import os
import pathlib
from dataclasses import replace

from data.tokenizer import CharTokenizer
from model.command import number_of, shown
from model.convert.families import GPT2, layout, our_parameters
from model.convert.model_file import FormatError, ModelFile, explain, text_of
from model.convert.tokens import TokenTokenizer
from model.convert.torch_file import LARGEST, TorchFile, View, unpickle
from model.transformer import TransformerConfig

SETTINGS = {"n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size", "dropout"}
COMPILED = "_orig_mod."         # before each name, where torch.compile made the model
TOKENS, HEAD, MASK = "transformer.wte.weight", "lm_head.weight", ".attn.bias"
END = "<|endoftext|>"           # of GPT-2's tokenizer


def read(path: str | os.PathLike, tokenizer: str | os.PathLike | None = None) -> ModelFile:
    """Read a checkpoint of nanoGPT; nothing in it is executed.

    A model of tokens needs `tokenizer`, a tokenizer.json.  The characters of others are in
    meta.pkl, beside the checkpoint or in data/<dataset>/ of a folder above.

    Raises
    ------
    FormatError : the file is damaged, or holds another model, or its pickle names what tensors do
        not need; or there is no tokenizer.
    """
    path = pathlib.Path(path)
    explained = (f"{path} is not a checkpoint of nanoGPT that can be read",
                 "use another, or train and save it again there")
    with explain(*explained):
        file = TorchFile(path)
        config, views = _model(file, path.stat().st_size)
        read = explain(*explained)(file.array)
        weights = our_parameters("it", layout(config, GPT2.names, len(views) + 1), views,
                                 lambda name: read(views[name]))
    notes = []
    iterations = file.content.get("iter_num")
    if type(iterations) is int and 0 <= iterations < 1 << 63:
        notes.append(f"written after {number_of(iterations, 'iteration')}")
    if tokenizer is None:
        meta = _meta_pkl(path, file.content)
        tokens = _characters(meta, config.vocab_size)
        notes.append(f"its characters are those of {meta}")
    else:
        tokens = _tokens(path, tokenizer, config.vocab_size)
        notes.append(f"its tokens are those of {tokenizer}")
    return ModelFile("nanoGPT checkpoint", config, weights, tokens, notes)


def _model(file: TorchFile, size: int) -> tuple[TransformerConfig, dict[str, View]]:
    """Return the configuration, and where each weight is, by nanoGPT's names."""
    content = file.content if isinstance(file.content, dict) else {}
    for key in ("model", "model_args"):
        if not isinstance(content.get(key), dict) or not all(type(k) is str for k in content[key]):
            raise FormatError(f"it has no {key}, a dict by names that nanoGPT's train.py writes")
    views = {}
    for name, tensor in content["model"].items():
        if not name.endswith(MASK):     # of attention without a fused kernel; not a weight
            with explain(f"{shown(name)} of its model cannot be read"):
                views[name.removeprefix(COMPILED)] = file.view(tensor)
    arguments = content["model_args"]
    if wrong := SETTINGS ^ arguments.keys():
        raise FormatError(f"{shown(min(wrong))} of its model_args is missing, or unknown to "
                          "nanoGPT's GPTConfig")
    with explain("its model_args describe no model"):
        config = TransformerConfig(**arguments)
    if HEAD in views and views[HEAD] != views.get(TOKENS):
        config = replace(config, tied=False)
    else:
        views.pop(HEAD, None)       # one tensor, saved by two names
    # Each number has 2 bytes at least, if no two weights share it.
    if 2 * sum(math.prod(view.shape) for view in views.values()) > size:
        raise FormatError("its weights share their numbers")
    return config, views


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
    config = content.get("config")
    dataset = config.get("dataset") if isinstance(config, dict) else None
    folders = [path.parent]
    if type(dataset) is str and dataset not in ("", ".", "..") and dataset.isprintable() \
            and pathlib.PurePath(dataset).name == dataset:
        folders += [parent / "data" / dataset for parent in path.absolute().parents]
    for folder in folders:
        if (folder / "meta.pkl").is_file():
            return folder / "meta.pkl"
    where = f" (data/{shown(dataset)}/meta.pkl of nanoGPT)" if len(folders) > 1 else ""
    raise FormatError("a checkpoint of nanoGPT does not hold its tokenizer: put its meta.pkl"
                      f"{where} beside {path} if the model knows characters, or give the "
                      "tokenizer.json by --tokenizer if it knows tokens, such as those of GPT-2")


def _characters(meta, V):
    """Return the tokenizer of a meta.pkl, of V characters."""
    with open(meta, "rb") as file:
        content = file.read(LARGEST + 1)
    with explain(f"{meta} is not the meta.pkl of this checkpoint", "put the right one beside it"):
        found = unpickle(content)
        characters = found.get("itos") if isinstance(found, dict) else None
        if not isinstance(characters, dict) or characters.keys() != set(range(V)) or not all(
                type(c) is str and len(c) == 1 for c in characters.values()):
            raise FormatError(f"it has no itos with a character for each of {V} ids")
        return CharTokenizer.of("".join(characters[i] for i in range(V)))
