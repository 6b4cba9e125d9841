"""Folders of Hugging Face: config.json, safetensors files, tokenizer.json.

`write` adds our own configuration to config.json, under "minigrad".  `read` uses it if all else in
the folder agrees with it.  So a model comes back as it was, to the bit, without the zeros and ones
that their classes need.
"""
import json
import pathlib
from collections import ChainMap
from dataclasses import asdict, replace

import numpy as np

from data.files import AnyPath, replacing
from data.tokenizer import CharTokenizer, Tokenizer
from minigrad.words import shown
from model.convert import families, safetensors
from model.convert.model_file import FormatError, ModelFile, explain, some, text_of
from model.convert.tokens import TokenTokenizer, tokenizer_parts, with_metadata

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NOTE = "minigrad"       # the key of our own configuration
CHAT_TEMPLATE, STRING = "tokenizer.chat_template", [8]      # a key of GGUF files, and its type
LENGTH, WHOLE = "llama.context_length", [4]
# Buffers that older versions stored, of any dtype; the configuration says what they hold.
BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")


def read(path: AnyPath, tokenizer: AnyPath | None = None) -> ModelFile:
    """Read a folder with a model of GPT-2's, Llama's or Arcee's class; `tokenizer` is a
    tokenizer.json to take instead of the one in the folder.

    Raises
    ------
    FormatError : it is damaged, or of another class, or asks for what our models do not compute.
    MissingLibrary : its tokenizer is of tokens, and the library is not installed.
    """
    folder = pathlib.Path(path)
    said = _json(folder / "config.json")
    config, family = families.configuration(folder / "config.json", said)
    tensors = _tensors(folder, family)
    table, output = (f"{family.names[name]}.weight" for name in ("token_embedding", "lm_head"))
    if config.tied and tensors.keys() >= {table, output}:
        if np.array_equal(tensors[table].read(), tensors[output].read()):
            del tensors[output]
        elif "tie_word_embeddings" in said:
            raise FormatError(f"{folder} has tie_word_embeddings = True, and {output} differs from "
                              f"{table}; make it false in config.json if both are the model's")
        else:
            config = replace(config, tied=False)
    with explain(str(folder)):
        stored = families.layout(config, family.names, len(tensors), **family.storage)
    weights = families.our_parameters(folder, stored, tensors, lambda name: tensors[name].read())
    own, weights = families.as_noted(said.get(NOTE), config, family, weights)
    keys = {}       # what goes out again, also after training with a shorter block
    if own.position == "rotary" and (own.block_size, asdict(own)) != (config.block_size,
                                                                      said.get(NOTE)):
        keys[LENGTH] = config.block_size, WHOLE
    tokenizer, notes = _tokenizer(pathlib.Path(tokenizer or folder / "tokenizer.json"), said, own,
                                  keys)
    return ModelFile("Hugging Face folder", own, weights, tokenizer, notes)


def _json(path, text=None):
    """Return the JSON object in a file, or in its text."""
    text = text_of(path) if text is None else text
    with explain(f"{path} is no JSON", errors=(ValueError, RecursionError)):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise FormatError(f"{path} is no JSON object")
    return found


def _tensors(folder, family):
    """Return the tensors of a folder's files, by their names in a model with its output."""
    where, files = {}, [WEIGHTS]
    if (folder / INDEX).exists():
        where = _json(folder / INDEX).get("weight_map")
        if not isinstance(where, dict) or any(not isinstance(file, str) or pathlib.Path(file).name
                                              != file for file in where.values()):
            raise FormatError(f"{folder / INDEX} has no weight_map from names to files beside it")
        files = sorted(set(where.values()))
        if WEIGHTS not in files and (folder / WEIGHTS).exists():
            raise FormatError(f"{folder} has {WEIGHTS} and a file {INDEX} that names other files; "
                              "remove what is not of this model")
    if missing := {file for file in files if not (folder / file).is_file()}:
        parts = {path.name for path in folder.glob("*.safetensors")}
        if where:
            why = f", which its {INDEX} names; copy all files of the model"
        elif parts:
            why = f", and no {INDEX} that names {some(parts)}; copy all files of the model"
        else:
            why = ("; if it has weights of another kind, write it anew where transformers is "
                   "installed: AutoModelForCausalLM.from_pretrained(old).save_pretrained(new)")
        raise FormatError(f"{folder} has no {some(missing)}{why}")
    found = {}
    for file in files:
        tensors, _ = safetensors.open_tensors(folder / file, BUFFERS)
        if twice := found.keys() & tensors.keys():
            raise FormatError(f"{folder} has {some(twice)} in two files")
        found |= tensors
    prefix, _, table = family.names["token_embedding"].partition(".")
    prefix += "."
    if f"{table}.weight" in found:      # saved without the output
        found = {name if name.startswith("lm_head.") else prefix + name: tensor
                 for name, tensor in found.items()}
    return found


def _tokenizer(path, said, config, keys):
    """Return the tokenizer in a file, with these keys, and lines for the user."""
    if not path.exists():
        raise FormatError(f"there is no {path}; give the model's tokenizer.json by --tokenizer")
    text = text_of(path)
    vocabulary = characters(_json(path, text))
    notes, end = [], said.get("eos_token_id")
    if isinstance(end, list) and end:
        notes = [f"of the ids that end a text, {shown(str(end)[1:-1])}, the first is used"]
        end = end[0]
    if type(end) is not int or not 0 <= end < config.vocab_size:
        if end is not None:
            notes = [f"the id {shown(end)}, which should end a text, is no token; none does"]
        end = None
    with explain(f"{path} is not a tokenizer of this model", errors=(TypeError, ValueError)):
        if vocabulary:
            return CharTokenizer.of(vocabulary, config.vocab_size), []
        if template := _chat_template(path.parent):
            keys[CHAT_TEMPLATE] = template, STRING
        if keys:
            text = with_metadata(text, {"keys": keys})
        return TokenTokenizer(text, end, config.vocab_size), notes


def _chat_template(folder):
    """Return how a folder's model is asked, from the two places where it may stand."""
    if (folder / "chat_template.jinja").is_file():
        return text_of(folder / "chat_template.jinja")
    if (folder / "tokenizer_config.json").is_file():
        template = _json(folder / "tokenizer_config.json").get("chat_template")
        return template if isinstance(template, str) else None


def write(path: AnyPath, model: ModelFile) -> None:
    """Write a model into an existing folder, for the class that computes the same.  Refuse a model
    for which there is none, and a vocabulary that no tokenizer.json can hold."""
    folder, config, tokenizer = pathlib.Path(path), model.config, model.tokenizer
    family = families.family_of(config)
    stored = families.layout(families.complete(config, family), family.names, **family.storage)
    longest, _ = _keys(tokenizer).get(LENGTH, (0, WHOLE))
    longest = max(longest, config.block_size)
    described = {
        "architectures": [family.architecture], "model_type": family.model_type,
        "dtype": "float32", **families.settings(replace(config, block_size=longest), family),
        "bos_token_id": None, "eos_token_id": tokenizer.end, NOTE: asdict(config)}
    if family is families.GPT2:
        described |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout)
    texts = {"config.json": _json_text(described),
             "generation_config.json": _json_text({"eos_token_id": tokenizer.end}),
             "tokenizer.json": tokenizer_json(tokenizer),
             "tokenizer_config.json": _json_text(_tokenizer_config(tokenizer, longest))}
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    weights = ChainMap(families.neutral_weights(config, family), model.weights)
    safetensors.write_tensors(
        folder / WEIGHTS, families.their_shapes(stored), families.their_tensors(weights, stored),
        {"format": "pt"})       # of the tensors' layout; transformers asks for it


def _json_text(value):
    return json.dumps(value, indent=2) + "\n"


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """Return the text of the tokenizer.json of a tokenizer."""
    if not isinstance(tokenizer, CharTokenizer):
        return tokenizer.library_json
    with explain("no tokenizer.json can hold half a pair of surrogates",
                 "train on a text without it", UnicodeEncodeError):
        tokenizer.vocabulary.encode()
    return _json_text(of_characters(tokenizer.vocabulary))


def _keys(tokenizer):
    """Return the keys of a GGUF file that a tokenizer has brought, with their types."""
    return getattr(tokenizer, "metadata", {}).get("keys", {})


def _tokenizer_config(tokenizer, longest):
    """Return what makes transformers take tokenizer.json as it is."""
    found = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
             "model_max_length": longest}
    if CHAT_TEMPLATE in _keys(tokenizer):
        found["chat_template"], _ = _keys(tokenizer)[CHAT_TEMPLATE]
    if tokenizer.end is not None:
        from tokenizers import Tokenizer    # which is there, as the tokenizer could be made
        found["eos_token"] = Tokenizer.from_str(tokenizer.library_json).id_to_token(tokenizer.end)
    return found


def of_characters(vocabulary: str) -> dict[str, object]:
    """Return a tokenizer.json whose tokens are characters: the text is split between any two, and
    nothing is normalised, added or left out.  An unknown character is an error, as there is no
    token for it."""
    return tokenizer_parts(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated",
                       "invert": False},
        decoder={"type": "Fuse"},
        model={"type": "WordLevel", "vocab": {c: i for i, c in enumerate(vocabulary)},
               "unk_token": ""})


def characters(found: dict[str, object]) -> str | None:
    """Return the vocabulary if a tokenizer.json is `of_characters`, else None."""
    model = found.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict) and all(len(token) == 1 for token in vocabulary):
        vocabulary = "".join(vocabulary)
        ours = of_characters(vocabulary)
        ours["post_processor"] = found.get("post_processor")    # transformers writes an idle one
        return vocabulary if vocabulary and ours == found else None
