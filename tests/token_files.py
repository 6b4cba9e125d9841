"""Small tokenizer.json of the two kinds that today's language models have, written without the
library that reads them."""
import functools
import json

from model.convert.tokens import tokenizer_parts

END = "<|end|>"
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "Ġ q", "Ġt h", "r e", "Ċ Ċ", "ð Ł"]
MARKED = ["▁ t", "h e", "▁t he", "i n", "▁ q", "▁t h", "r e"]


def tokenizer_json(**parts):
    return json.dumps(tokenizer_parts(**parts))


def of_words(*words, **parts):
    vocabulary = {word: i for i, word in enumerate(words)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
    return tokenizer_json(model=model, **parts)


def special(id, content):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True}


def alphabet():
    """The character that stands for each byte: its own if it is printable, else one of 256 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


@functools.cache
def byte_level():
    """As of GPT-2: a special token, 256 bytes, and the tokens of the merges; V = 266."""
    vocabulary = [END, *alphabet(), *("".join(pair.split()) for pair in MERGES)]
    byte = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return tokenizer_json(added_tokens=[special(0, END)], pre_tokenizer=byte, decoder=byte, model={
        "type": "BPE", "vocab": {token: i for i, token in enumerate(vocabulary)},
        "merges": MERGES})


@functools.cache
def byte_fallback():
    """As of Llama: special tokens, of which <s> begins every text, 256 bytes for what has no token,
    letters, and a mark for spaces, one of which is put before every text."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz"]
    vocabulary = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters,
                  *("".join(pair.split()) for pair in MARKED)]
    space = {"content": "▁", "pattern": {"String": " "}}
    return tokenizer_json(
        added_tokens=[special(i, vocabulary[i]) for i in range(3)],
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                        {"type": "Replace", **space}]},
        post_processor={
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]}
                               for i, name in ((1, "<s>"), (2, "</s>"))}},
        decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        model={"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
               "vocab": {token: i for i, token in enumerate(vocabulary)}, "merges": MARKED})
