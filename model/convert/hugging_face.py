"""Folders of Hugging Face: config.json, safetensors files, tokenizer.json.

`write` adds our own configuration to config.json, under "minigrad".  `read` uses it if all else in
the folder agrees with it.  So a model comes back as it was, to the bit, without the zeros and ones
that their classes need.
"""
import json
import os
import pathlib
from collections import ChainMap
from dataclasses import asdict, replace

from data.tokenizer import CharTokenizer
from model.convert.tokens import MissingLibrary, TokenTokenizer
from model.command import shown
from model.convert import families, safetensors
from model.convert.found import Found, FormatError, Lazy, check_shapes, shapes_of, some, text_of
from model.files import replacing
from model.transformer import TransformerConfig, parameter_shapes

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NOTE = "minigrad"       # the key of our own configuration
# Buffers that older versions stored, of any kind of number; the configuration says what they hold.
BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")


def read(path: str | os.PathLike, tokenizer: str | os.PathLike | None = None) -> Found:
    """Read a folder with a model of GPT-2's, Llama's or Arcee's class.

    Parameters
    ----------
    tokenizer : another tokenizer.json to take than that of the folder.

    Raises
    ------
    FormatError : it is damaged, or of another class, or asks for what our models do not compute.
    MissingLibrary : its tokenizer is of tokens, and the library is not installed.
    """
    folder = pathlib.Path(path)
    said = _json(folder / "config.json")
    config, family = families.configuration(folder / "config.json", said)
    tensors = _tensors(folder, family)
    config = _tied(config, family, tensors)
    stored = families.pieces(config, family, shapes_of(config, len(tensors)))
    check_shapes(folder, families.stored_shapes(stored),
                 {name: tensor.shape for name, tensor in tensors.items()})
    weights = families.as_ours(Lazy({name: t.read for name, t in tensors.items()}), stored)
    tokenizer, lines = _tokenizer(pathlib.Path(tokenizer or folder / "tokenizer.json"), said,
                                  config)
    if own := _as_it_was(said.get(NOTE), config, family, weights):
        config, weights = own, Lazy({n: weights.data[n] for n, _ in parameter_shapes(own)})
    return Found("Hugging Face folder", config, weights, tokenizer, lines)


def _text(path, remedy="give a folder that has the files of one model of Hugging Face"):
    """Return the text of a file that must be there."""
    try:
        return text_of(path)
    except FileNotFoundError as error:
        raise FormatError(f"there is no {path}; {remedy}") from error


def _json(path, text=None):
    """Return the JSON object in a file, or in its text."""
    text = _text(path) if text is None else text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is no JSON: {shown(error)}; take the file as it was written"
                          ) from error
    if not isinstance(found, dict):
        raise FormatError(f"{path} is no JSON object; take the file as it was written")
    return found


def _tensors(folder, family):
    """Return the tensors of a folder's files, by their names in a model with its output."""
    if (folder / INDEX).exists():
        where = _json(folder / INDEX).get("weight_map")
        if not isinstance(where, dict) or any(not isinstance(file, str) or pathlib.Path(file).name
                                              != file for file in where.values()):
            raise FormatError(f"{folder / INDEX} has no weight_map from names to files beside it; "
                              "take the file as it was written")
        files = sorted(set(where.values()))
        if lost := {file for file in files if not (folder / file).is_file()}:
            raise FormatError(f"{folder} has no {some(lost)}, which its {INDEX} names; take all "
                              "files of the model")
    elif (folder / WEIGHTS).exists():
        where, files = {}, [WEIGHTS]
    else:
        raise FormatError(f"{folder} has no {WEIGHTS}; if it has weights of another kind, write "
                          "it anew where transformers is installed: AutoModelForCausalLM."
                          "from_pretrained(old).save_pretrained(new)")
    found = {}
    for file in files:
        some_of_them, _ = safetensors.opened(folder / file, BUFFERS)
        if twice := found.keys() & some_of_them.keys():
            raise FormatError(f"{folder} has {some(twice)} in two files; take the files as they "
                              "were written")
        found |= some_of_them
    if lost := {name for name in where if name not in found and not name.endswith(BUFFERS)}:
        raise FormatError(f"{folder / INDEX} names {some(lost)}, which its files lack; take the "
                          "files as they were written")
    prefix = family.names["token_embedding"][0].partition(".")[0] + "."
    if not any(name.startswith(prefix) for name in found):      # saved without the output
        found = {name if name.startswith("lm_head.") else prefix + name: tensor
                 for name, tensor in found.items()}
    return found


def _tied(config, family, tensors):
    """Return the configuration with an output of its own if there is one that differs from the
    token table, whatever it says, as transformers has it; drop an output that does not differ."""
    table, output = (f"{family.names[name][0]}.weight" for name in ("token_embedding", "lm_head"))
    if not config.tied or not tensors.keys() >= {table, output}:
        return config
    a, b = tensors[table], tensors[output]
    if a.shape == b.shape and (a.read() == b.read()).all():
        del tensors[output]
        return config
    return replace(config, tied=False)


def _as_it_was(note, config, family, weights):
    """Return the configuration that `write` noted; None if the folder has since become another."""
    try:
        own = TransformerConfig(**note)
        agrees = (families.settings(own, families.family_of(own))
                  == families.settings(config, family))
    except (TypeError, ValueError):
        return None
    if agrees and all((weights[name] == a).all()
                      for name, a in families.absent(own, family).items()):
        return own


def _tokenizer(path, said, config):
    """Return the tokenizer in a file, and lines for the user."""
    text = _text(path, "give the tokenizer.json of the model by --tokenizer")
    found = _json(path, text)
    lines, end = [], said.get("eos_token_id")
    if isinstance(end, list):
        ids = shown(", ".join(map(str, end)))
        lines = [f"of the ids that end a text, {ids}, the first is taken"]
        end = end[0] if end else None
    if type(end) is int and not 0 <= end < config.vocab_size:
        lines, end = [f"the id {shown(end)}, which should end a text, is no token; none does"], None
    try:
        if vocabulary := characters(found):
            return CharTokenizer.of(vocabulary, config.vocab_size), []
        return TokenTokenizer(text, end, config.vocab_size), lines
    except MissingLibrary:
        raise
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path} is no tokenizer of this model: {shown(error)}; take the "
                          "file as it was written") from error


def write(path: str | os.PathLike, found: Found) -> None:
    """Write a model into a folder, which must be there, for the class that computes the same.

    Raises
    ------
    FormatError : no class of Hugging Face does, or its library cannot have the vocabulary.
    """
    folder, (_, config, weights, tokenizer, _) = pathlib.Path(path), found
    family = families.family_of(config)
    whole = families.whole(config, family)
    stored = families.pieces(whole, family, dict(parameter_shapes(whole)))
    described = {
        "architectures": [family.architecture], "model_type": family.model_type,
        "dtype": "float32", **families.settings(config, family), "bos_token_id": None,
        "eos_token_id": tokenizer.end, NOTE: asdict(config)}
    if family is families.GPT2:
        described |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout)
    texts = {"config.json": _written(described),
             "generation_config.json": _written({"eos_token_id": tokenizer.end}),
             "tokenizer.json": tokenizer_json(tokenizer),
             "tokenizer_config.json": _written(_tokenizer_config(tokenizer, config))}
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    safetensors.write_tensors(
        folder / WEIGHTS, families.stored_shapes(stored),
        families.as_theirs(ChainMap(families.absent(config, family), weights), stored),
        {"format": "pt"})       # of the tensors' layout; transformers asks for it


def _written(value):
    return json.dumps(value, indent=2) + "\n"


def tokenizer_json(tokenizer: CharTokenizer | TokenTokenizer) -> str:
    """Return the text of the tokenizer.json of a tokenizer."""
    if not isinstance(tokenizer, CharTokenizer):
        return tokenizer.json
    try:
        tokenizer.vocabulary.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"the vocabulary has {tokenizer.vocabulary[error.start]!r}, half a pair "
                          "of surrogates, which no tokenizer.json can hold; train on a text "
                          "without it") from error
    return _written(of_characters(tokenizer.vocabulary))


def _tokenizer_config(tokenizer, config):
    """Return what tells transformers to take tokenizer.json as it is."""
    found = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
             "model_max_length": config.block_size}
    if tokenizer.end is not None:
        from tokenizers import Tokenizer    # which is there, as the tokenizer could be made
        found["eos_token"] = Tokenizer.from_str(tokenizer.json).id_to_token(tokenizer.end)
    return found


def of_characters(vocabulary: str) -> dict[str, object]:
    """Return a tokenizer.json whose tokens are characters: the text is split between any two, and
    nothing is normalised, added or left out.  A character that is not in it is an error, as there
    is no token for it."""
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"},
                              "behavior": "Isolated", "invert": False},
            "post_processor": None, "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": {c: i for i, c in enumerate(vocabulary)},
                      "unk_token": ""}}


def characters(found: dict[str, object]) -> str | None:
    """Return the vocabulary if a tokenizer.json is `of_characters`, else None."""
    model = found.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict) and all(len(token) == 1 for token in vocabulary):
        vocabulary = "".join(vocabulary)
        ours = of_characters(vocabulary)
        ours["post_processor"] = found.get("post_processor")    # transformers writes an idle one
        return vocabulary if vocabulary and ours == found else None
