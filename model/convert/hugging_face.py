"""Folders of Hugging Face: config.json, safetensors files, tokenizer.json.

`write` adds our own configuration to config.json, under "minigrad".  `read` uses it if all else in
the folder agrees with it.  So a model comes back as it was, to the bit, without the zeros and ones
that their classes need.
"""
import contextlib
import json
import pathlib
from dataclasses import asdict, replace

import numpy as np

from data.files import AnyPath, replacing
from data.tokenizer import CharTokenizer, Tokenizer
from minigrad.words import any_of, shown
from model.config import TransformerConfig
from model.convert import families, safetensors
from model.convert.gguf_tokens import TOKENS
from model.convert.model_file import FormatError, Held, ModelFile, explain, some, text_of
from model.convert.tokens import (CHAT_TEMPLATE, TokenTokenizer, stated_ends, tokenizer_parts,
                                  valid_ids, with_metadata)

CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER_CONFIG, TOKENS_MAP = "tokenizer_config.json", "special_tokens_map.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NOTE = "minigrad"       # the key of our own configuration
# Keys of GGUF files, and their types: a template, one with a name, and the names of these
STRING = [8]
NAMED, NAMES, STRINGS = f"{CHAT_TEMPLATE}.", "tokenizer.chat_templates", [9, 8]
DEFAULT = "default"     # the template that has no name in a GGUF file
LENGTH, WHOLE = "llama.context_length", [4]
# Tokens with a role, as transformers names them -> the keys of their ids in GGUF files
ROLES = {"bos_token": f"{TOKENS}bos_token_id", "unk_token": f"{TOKENS}unknown_token_id",
         "sep_token": f"{TOKENS}seperator_token_id", "pad_token": f"{TOKENS}padding_token_id",
         "cls_token": f"{TOKENS}cls_token_id", "mask_token": f"{TOKENS}mask_token_id"}
IN_CONFIGS = "bos_token", "pad_token"       # whose ids config.json and generation_config.json say
# Buffers that older versions stored, of any dtype; the configuration says what they hold.
BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}       # of activations
# Keys that do not change what a trained model computes.
IDLE = set("""
    _attn_implementation_autoset _name_or_path _num_labels architectures attention_dropout
    attn_pdrop bos_token_id dtype embd_pdrop eos_token_id gradient_checkpointing id2label
    initializer_range is_llama_config label2id minigrad model_type num_labels
    output_attentions output_hidden_states pad_token_id problem_type reorder_and_upcast_attn
    resid_pdrop return_dict summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj task_specific_params torch_dtype transformers.js_config
    transformers_version unk_token_id use_cache""".split())
# The keys below which rotary positions may be described, and a description that scales none.
ROPE = "rope_parameters", "rope_scaling"
UNSCALED = {"rope_type": "default", "type": "default", "factor": 1, "partial_rotary_factor": 1}


def read(path: AnyPath, tokenizer: AnyPath | None = None) -> ModelFile:
    """Read a folder with a model of GPT-2's, Llama's, Qwen2's, Qwen3's or Arcee's class;
    `tokenizer` is a tokenizer.json to take instead of the one in the folder.

    Raises
    ------
    FormatError : it is damaged, or of another class, or asks for what our models do not compute.
    MissingLibrary : its tokenizer is of tokens, and the library is not installed.
    """
    folder = pathlib.Path(path)
    said = _json(folder / CONFIG)
    config, family = configuration(folder / CONFIG, said)
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
        weights = families.our_parameters(config, family, tensors)
    own, weights = families.as_noted(said.get(NOTE), config, weights, family)
    keys = {}       # what goes out again, also after training with a shorter block
    if own.position == "rotary" and (own.block_size, asdict(own)) != (config.block_size,
                                                                      said.get(NOTE)):
        keys[LENGTH] = config.block_size, WHOLE
    configs = [said]
    if (folder / GENERATION).is_file():         # which transformers takes first
        configs.insert(0, _json(folder / GENERATION))
    tokenizer, notes = _tokenizer(folder, pathlib.Path(tokenizer or folder / "tokenizer.json"),
                                  configs, own, keys)
    return ModelFile("Hugging Face folder", own, weights, tokenizer, notes)


def configuration(path: object, said: dict[str, object]
                  ) -> tuple[TransformerConfig, families.Family]:
    """Return the configuration that a config.json describes, and its class.  Refuse one of another
    class, or that asks for what our models do not compute."""
    name = said.get("model_type")
    family = families.FAMILIES.get(str(name))
    if not family:
        families.refuse(path, "model_type", name, *families.FAMILIES)
    classes = said.get("architectures")
    if classes and family.name not in str(classes).lower():
        families.refuse(path, "architectures", classes, f"{family.architecture} of its model_type")
    found = {key: value for key, value in said.items() if key not in IDLE}
    scaling = {}
    for key in ROPE:
        rope = found.pop(key, None) or {}
        if not isinstance(rope, dict):
            families.refuse(path, key, rope, "null")
        if found.get("rope_theta") is None:
            found["rope_theta"] = rope.get("rope_theta")
        scaling |= _scaling(path, key, rope, found["rope_theta"])
    if family in (families.QWEN2, families.QWEN3):
        _check_windows(path, found)
    key = family.keys["activation"]
    found[key] = SYNONYMS.get(str(found.get(key)), found.get(key))
    return families.configuration(path, found, family, **scaling), family


def _scaling(path, key, rope, base):
    """Return the options of what slows rotary positions, as a folder describes it under a key.
    Refuse another rule than that of Llama 3."""
    possible = UNSCALED | {"rope_theta": base}
    options = {}
    names = {"factor": "rotary_factor", "original_max_position_embeddings": "rotary_length"}
    kind = rope.get("rope_type", rope.get("type"))
    if kind == families.LLAMA3["rope_type"]:
        possible = families.LLAMA3 | {"type": kind, "rope_theta": base}
        for name, option in names.items():
            if rope.get(name) is None:
                raise FormatError(f"{path} lacks {key}.{name}; fetch the whole model again")
            options[option] = possible[name] = rope[name]
    for name, value in rope.items():
        if value is not None and not families.same(value, possible.get(name)):
            families.refuse(path, f"{key}.{name}", value, possible.get(name))
    return options


def _check_windows(path, found):
    """Take what says that no layer has a window out of the keys of a Qwen; refuse windows."""
    if not found.get("use_sliding_window"):
        found.pop("sliding_window", None)
        found.pop("max_window_layers", None)
    for layer in found.pop("layer_types", None) or []:
        if layer != "full_attention":
            families.refuse(path, "layer_types", layer, "full_attention")


def _json(path, text=None):
    """Return the JSON object in a file, or in its text."""
    text = text or text_of(path)
    with explain(f"{path} is no JSON", errors=(ValueError, RecursionError)):
        found = json.loads(text)
    if not isinstance(found, dict):
        raise FormatError(f"{path} is no JSON object; fetch it again")
    return found


def _tensors(folder, family):
    """Return the tensors of a folder's files, by their names in a model with its output."""
    index = folder / INDEX
    files = [WEIGHTS]
    if index.exists():
        where = _json(index).get("weight_map")
        if not isinstance(where, dict) or any(pathlib.Path(str(file)).name != file
                                              for file in where.values()):
            raise FormatError(f"{index} has no weight_map from names to files beside it; "
                              "fetch it again")
        files = sorted(set(where.values()))
        if WEIGHTS not in files and (folder / WEIGHTS).exists():
            raise FormatError(f"{folder} has {WEIGHTS} and a file {INDEX} that names other files; "
                              "remove what is not of this model")
    if missing := {file for file in files if not (folder / file).is_file()}:
        parts = {path.name for path in folder.glob("*.safetensors")}
        if index.exists():
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
            raise FormatError(f"{folder} has {some(twice)} in two files; remove one of them")
        found |= tensors
    prefix, _, table = family.names["token_embedding"].partition(".")
    prefix += "."
    if f"{table}.weight" in found:      # saved without the output
        found = {name if name.startswith("lm_head.") else prefix + name: tensor
                 for name, tensor in found.items()}
    return found


def _tokenizer(folder, path, configs, config, keys):
    """Return the tokenizer in a file, with these keys and those of its folder, and lines for the
    user.  The first of the folder's configurations that states ends is right; it may be a list."""
    if not path.exists():
        raise FormatError(f"there is no {path}; give the model's tokenizer.json by --tokenizer")
    text = text_of(path)
    vocabulary = characters(_json(path, text))
    stated = next(filter(lambda end: end is not None,
                         (found.get("eos_token_id") for found in configs)), [])
    stated = stated if isinstance(stated, list) else [stated]
    ends = valid_ids(stated, config.vocab_size)
    wrong = [id for id in stated if id not in ends]
    notes = [f"the id {shown(wrong[0])}, which should end a text, is no token"
             + ("" if ends else "; none does")] if wrong else []
    with explain(f"{path} is not a tokenizer of this model", "give its tokenizer.json by "
                 "--tokenizer", (TypeError, ValueError)):
        if vocabulary:
            return CharTokenizer.of(vocabulary, config.vocab_size), []
        tokenizer = TokenTokenizer(text, ends, config.vocab_size)
        roles, more = _roles(folder, tokenizer, configs)
        end = roles.pop("eos_token", None)
        if end in ends:     # it is the one that a chat template writes
            ends.sort(key=lambda id: id != end)
        templates, said = _chat_templates(folder)
        keys |= {ROLES[name]: (id, WHOLE) for name, id in roles.items()}
        keys |= _template_keys(templates)
        if keys:
            text = with_metadata(text, {"keys": keys})
        return TokenTokenizer(text, ends, config.vocab_size), notes + more + said


def _roles(folder, tokenizer, configs):
    """Return the ids of tokens with a role, such as bos_token, as a folder names them; and lines
    about what is left out."""
    found = [_json(folder / name) if (folder / name).is_file() else {}
             for name in (TOKENS_MAP, TOKENIZER_CONFIG)]
    if "added_tokens_decoder" not in found[1]:      # then transformers believes the other file
        found.reverse()
    named = found[0] | {key: value for key, value in found[1].items() if value is not None}
    ids = tokenizer.ids_of_names()
    roles, notes = {}, []
    for role in ("eos_token", *ROLES):
        name = named.get(role)
        name = name.get("content") if isinstance(name, dict) else name
        stated = (each.get(f"{role}_id") for each in configs) if role != "eos_token" else ()
        id = next((id for id in stated if id is not None), None) if name is None else ids.get(
            str(name))
        if valid_ids([id], tokenizer.vocab_size):
            roles[role] = id
        elif name is not None or id is not None:
            notes.append(f"its {role}, {shown(name if id is None else id)}, is no token of "
                         "tokenizer.json, and is left out")
    if "eos_token" in roles and roles["eos_token"] not in tokenizer.ends:
        notes.append(f"its eos_token, {shown(roles['eos_token'])}, is none of the ids that end a "
                     f"text ({CONFIG}, {GENERATION}), and is left out")
    for key, ids in zip(("add_bos_token", "add_eos_token"), tokenizer.around):
        if key in named and bool(named[key]) != bool(ids):
            notes.append(f"{TOKENIZER_CONFIG} has {key} = {shown(named[key])}, which "
                         "tokenizer.json contradicts, and is left out")
    return roles, notes


def _chat_templates(folder):
    """Return how a folder's model is asked, name -> template, from the first place that has any, in
    the order of transformers; and lines about what is left out."""
    files = {DEFAULT: folder / "chat_template.jinja"}
    files |= {path.stem: path for path in sorted(folder.glob("additional_chat_templates/*.jinja"))}
    found = {"files ending in .jinja": {name: text_of(path) for name, path in files.items()
                                        if path.is_file()}}
    notes = []
    for file in (TOKENIZER_CONFIG, "chat_template.json"):
        if (folder / file).is_file():
            stated = _json(folder / file).get("chat_template")
            found[file] = _named(stated)
            if found[file] is None:
                notes.append(f"the chat_template of {file} is no text, and no texts with names; it "
                             "is left out")
    first, *others = [place for place, templates in found.items() if templates] or [None]
    for place in others:
        if found[place] != found[first]:
            notes.append(f"the chat templates of {place} are left out, as there are {first}")
    templates = found.get(first, {})
    if templates and DEFAULT not in templates:
        notes.append(f"its chat templates are {any_of([*map(shown, templates)])}, and none is the "
                     "default, so other programs may ask for a name")
    return templates, notes


def _named(stated):
    """Return chat templates by their names: they may be one text, a dict, or a list of dicts; None
    if they are none of these."""
    if stated is None:
        return {}
    if isinstance(stated, str):
        return {DEFAULT: stated}
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        if isinstance(stated, list):
            stated = {each["name"]: each["template"] for each in stated}
        if all(isinstance(text, str) for pair in stated.items() for text in pair):
            return stated
    return None


def _template_keys(templates):
    """Return the keys of a GGUF file, with their types, of chat templates."""
    named = {name: text for name, text in templates.items() if name != DEFAULT}
    keys = {NAMED + name: (text, STRING) for name, text in named.items()}
    if named:
        keys[NAMES] = [*named], STRINGS
    if DEFAULT in templates:
        keys[CHAT_TEMPLATE] = templates[DEFAULT], STRING
    return keys


def write(path: AnyPath, model: ModelFile) -> Held:
    """Write a model into an existing folder, for the class that computes the same.  Refuse a model
    for which there is none, and a vocabulary that no tokenizer.json can hold."""
    folder, config, tokenizer = pathlib.Path(path), model.config, model.tokenizer
    family = families.family_of(config)
    longest, _ = _keys(tokenizer).get(LENGTH, (0, WHOLE))
    longest = max(longest, config.block_size)
    roles = stated_roles(tokenizer)
    ids = {"eos_token_id": stated_ends(tokenizer)} | {
        f"{role}_id": roles.get(role) for role in IN_CONFIGS}
    described = {
        "architectures": [family.architecture], "model_type": family.name, "dtype": "float32",
        **families.settings(replace(config, block_size=longest), family), **family.fixed,
        **ids, NOTE: asdict(config)}
    if family is families.GPT2:
        described |= dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout)
    texts = {CONFIG: _json_text(described),
             GENERATION: _json_text(ids),
             "tokenizer.json": tokenizer_json(tokenizer),
             TOKENIZER_CONFIG: _json_text(_tokenizer_config(tokenizer, longest))}
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    safetensors.write_tensors(
        folder / WEIGHTS, families.their_tensors(config, model.weights, family),
        {"format": "pt"})       # of the tensors' layout; transformers asks for it
    return Held()


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


def stated_roles(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of the tokens with a role that a tokenizer has brought."""
    stated = {role: _keys(tokenizer).get(key, (None, WHOLE))[0] for role, key in ROLES.items()}
    return {role: id for role, id in stated.items() if valid_ids([id], tokenizer.vocab_size)}


def _tokenizer_config(tokenizer, longest):
    """Return what makes transformers take tokenizer.json as it is."""
    found = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
             "model_max_length": longest}
    keys = _keys(tokenizer)
    templates = {DEFAULT if key == CHAT_TEMPLATE else key.removeprefix(NAMED): value
                 for key, (value, _) in keys.items()
                 if key == CHAT_TEMPLATE or key.startswith(NAMED)}
    if {*templates} == {DEFAULT}:
        found["chat_template"] = templates[DEFAULT]
    elif templates:
        found["chat_template"] = [{"name": name, "template": text}
                                  for name, text in templates.items()]
    roles = stated_roles(tokenizer)
    if tokenizer.end is not None:
        roles["eos_token"] = tokenizer.end
    if roles:
        names = {id: name for name, id in tokenizer.ids_of_names().items()}
        found |= {role: names[id] for role, id in roles.items() if id in names}
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
    with contextlib.suppress(KeyError, TypeError):
        vocabulary = "".join(found["model"]["vocab"])
        # transformers writes an idle post_processor
        ours = of_characters(vocabulary) | {"post_processor": found["post_processor"]}
        return vocabulary if vocabulary and ours == found else None
