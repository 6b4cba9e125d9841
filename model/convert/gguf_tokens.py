"""The tokenizer of a GGUF file: its keys, read and written as llama.cpp understands them.

A file can say of a tokenizer that it is a byte-level BPE with one of a few splits, which tokens are
special, which id begins a text, and which ones end it.  What else a tokenizer.json may say, such as
`ignore_merges`, is lost.  So `check` makes the tokenizer of the keys that were written, and
compares the ids of many texts.

The vocabulary of a model of characters goes out as one of the tokenizer of RWKV, which takes the
longest token that a text begins with, and knows no token that ends a text.  (With llama.cpp's
gpt2, token 11 would end it.)

Source: constants.py of gguf 0.19 for keys; llama-vocab.cpp of llama.cpp for what they mean.
"""
import json
from collections.abc import Iterable, Mapping

from data.tokenizer import CharTokenizer, Tokenizer
from minigrad.words import any_of, number_of, shown
from model.convert.model_file import FormatError, explain
from model.convert.tokens import TokenTokenizer, valid_ids, tokenizer_parts

TOKENS = "tokenizer.ggml."          # how keys of the tokenizer begin
HF_JSON = "tokenizer.huggingface.json"
CHARACTERS = "minigrad.characters"  # a key of our own
ENDS = "eos_token_id", "eot_token_id", "eom_token_id"   # llama.cpp ends a text at each
DEFAULT_ID = 11                     # of the beginning and the end, where a file names none
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5      # gguf.TokenType
# Tokens that llama.cpp takes for special ones, whatever type they have.
SPECIAL_NAMES = set("""
    <|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>
    <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>
    <｜end▁of▁sentence｜> <eos>""".split())
# Pairs of bytes that no text has: llama.cpp refuses a tokenizer without any merge.
NO_MERGE = "ÿ ÿ"
NEVER = {"À", "Á", *map(chr, range(0xF5, 0x100))}   # the bytes that UTF-8 never has


def _split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": False}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _by_words(digits):
    """Return the split of cl100k, the tokenizer of GPT-4, with digits by another rule."""
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits
             + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return {"type": "Sequence", "pretokenizers": [_split(words), BYTES | {"use_regex": False}]}


# How a text is split before it is encoded, by the names that llama.cpp has for it.
SPLITS = {
    "gpt-2": BYTES,
    "smollm": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, BYTES]},
    "default": {"type": "Sequence", "pretokenizers": [
        _split(r"[\p{P}\$\+<=>\^~\|]+"),
        _split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
        _split(r"\p{N}+"), _split("[0-9][0-9][0-9]"), BYTES | {"use_regex": False}]},
    "llama-bpe": _by_words(r"\p{N}{1,3}"),      # of Llama 3
    "qwen2": _by_words(r"\p{N}")}
COMPOSED = {"type": "NFC"}      # makes é of e and an accent; llama.cpp has no such step
NORMALIZERS = {"qwen2": COMPOSED}       # of a split
# Splits whose models take a word that is a token without merging, and put the beginning before each
# text unless a file denies it
OF_LLAMA3 = {"llama-bpe"}

# Texts whose ids are compared: words, digits, spaces, line breaks, scripts, each byte of UTF-8.
PROBES = [
    "", " ", "  ", "\n", " \n\n  \t", "The quick brown fox's tail, isn't it? We'LL see.",
    "in 3.14159 or 1,234,567 ½ Ⅷ ² ٣ x1y22z333", "  def f(x):\n        return x**2  # {x}\r\n\r\n",
    "a+b=c <=> $5 ^~| [UNK] \\n #@%&", "é e\u0301 Å \u212b ﬁ ǅ İ ß",
    "Ἀχιλῆος Привет, мир! שלום مرحبا",     "これは日本語です。漢字 한국어 नमस्ते ไทย",
    "🙂🙂 👩‍👩‍👧‍👦 🇫🇷 \ufffd \u200b\u00a0\u3000\u2028\ufeff",
    "".join(map(chr, range(1, 128))), "".join(map(chr, range(0x80, 0x800))),
    "".join(map(chr, [*range(0x800, 0xD800, 0x400), *range(0xE000, 0x110000, 0x10000)]))]


def ends_of(metadata: Mapping[str, object], vocab_size: int) -> list[int]:
    """Return the ids that end a text, as a file states them."""
    return valid_ids([metadata.get(TOKENS + key) for key in ENDS], vocab_size)


def tokenizer_json(metadata: Mapping[str, object]) -> str:
    """Return the tokenizer.json, as the library tokenizers reads it, of a GGUF file's byte-level
    BPE (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    section 3.2; on bytes: Radford et al. 2019, section 2.2)."""
    stated = {"pre": "default"} | {key.removeprefix(TOKENS): value
                                   for key, value in metadata.items()}
    for key, known in (("model", ["gpt2"]), ("pre", [*SPLITS])):
        if stated.get(key) not in known:
            raise FormatError(f"it has {TOKENS}{key} = {shown(stated.get(key))}, and only "
                              f"{any_of(known)} can be read")
    for key in ("tokens", "merges"):
        if not isinstance(stated.get(key), list) or not all(
                isinstance(text, str) for text in stated[key]):
            raise FormatError(f"it has no {TOKENS}{key}, a list of texts")
    tokens = stated["tokens"]
    kinds = stated.get("token_type", [NORMAL] * len(tokens))
    if len(set(tokens)) < len(tokens):
        raise FormatError("its tokens are not all different")
    if len(kinds) != len(tokens):
        raise FormatError(f"it has {len(tokens):,} tokens, and {TOKENS}token_type has "
                          f"{len(kinds):,} types")
    added = []
    for i, (token, kind) in enumerate(zip(tokens, kinds)):
        special = kind in (CONTROL, UNKNOWN) or token in SPECIAL_NAMES
        if special or kind == USER_DEFINED:
            added.append(dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False,
                              normalized=False, special=special))
    pre = stated["pre"]
    return json.dumps(tokenizer_parts(
        added_tokens=added,
        normalizer=NORMALIZERS.get(pre),
        pre_tokenizer=SPLITS[pre],
        post_processor=_around(stated, tokens),
        decoder=BYTES,
        model=dict(type="BPE",
                   vocab={token: i for i, token in enumerate(tokens)},
                   merges=_merges(stated["merges"], tokens),
                   ignore_merges=pre in OF_LLAMA3)))


def _around(stated, tokens):
    """Return what puts the beginning before a text, and the end after it, as a file says."""
    single = [{"Sequence": {"id": "A", "type_id": 0}}]
    special = {}

    def token(key):
        id = stated.get(key, DEFAULT_ID)
        if type(id) is not int or not 0 <= id < len(tokens):
            raise FormatError(f"its {TOKENS}{key} is {shown(id)}"
                              f"{'' if key in stated else ' by default'}, and it has "
                              f"{number_of(len(tokens), 'token')}")
        special[tokens[id]] = {"id": tokens[id], "ids": [id], "tokens": [tokens[id]]}
        return [{"SpecialToken": {"id": tokens[id], "type_id": 0}}]
    if stated.get("add_bos_token", stated["pre"] in OF_LLAMA3):
        single = token("bos_token_id") + single
    if stated.get("add_eos_token"):
        single = single + token("eos_token_id")
    if not special:
        return None
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": special}


def _merges(merges, tokens):
    """Return the merges that can apply, each once.  llama.cpp parts a merge at its first space;
    no part of a text has another one, or a byte that UTF-8 never has."""
    known = set(tokens)
    found = {}
    for merge in merges:
        a, _, b = merge.partition(" ")
        if not a or not b or " " in b or NEVER & {*merge}:
            continue
        if not known >= {a, b, a + b}:
            raise FormatError(f"its merge {shown(merge)} is of a token that it has not, or makes "
                              "one")
        found[merge] = None
    return [*found]


def keys_of(tokenizer: Tokenizer) -> dict[str, object]:
    """Return the metadata of a tokenizer.

    Raises
    ------
    FormatError : llama.cpp has no such tokenizer.
    """
    if isinstance(tokenizer, CharTokenizer):
        return _characters(tokenizer.vocabulary)
    found = tokenizer.parts()
    model = found["model"]
    pre = [name for name, split in SPLITS.items() if _same(split) == _same(found["pre_tokenizer"])]
    normalizers = _flat(found["normalizer"], "normalizers")
    expected = _flat(NORMALIZERS.get(pre[0]) if pre else None, "normalizers")
    if model["type"] != "BPE" or not pre or normalizers != expected:
        kinds = [_types(found["normalizer"]), _types(found["pre_tokenizer"]), model["type"]]
        raise FormatError("its tokenizer is no byte-level BPE that splits a text as "
                          f"{any_of([*SPLITS])}, and only such ones are written (it has "
                          f"{', '.join(filter(None, kinds))}); give llama.cpp the model's own "
                          "files")
    names = {i: token for token, i in model["vocab"].items()}
    kinds = dict.fromkeys(names, NORMAL)
    for added in found["added_tokens"]:
        names[added["id"]] = added["content"]
        kinds[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    every = range(tokenizer.vocab_size)
    merges = [" ".join(pair) for pair in model["merges"]]
    stated = {"model": "gpt2", "pre": pre[0],
              "tokens": [names.get(i, f"[UNUSED{i}]") for i in every],
              "token_type": [kinds.get(i, UNUSED) for i in every], "merges": merges or [NO_MERGE]
              } | _special(tokenizer, pre[0])
    return {TOKENS + key: value for key, value in stated.items()} | {
        HF_JSON: tokenizer.library_json}


def _special(tokenizer, pre):
    """Return the keys of the ids that begin and end a text."""
    for ids, where in zip(tokenizer.around, ("before", "after")):
        if len(ids) > 1:
            raise FormatError(f"its tokenizer puts {len(ids)} tokens {where} each text, and a GGUF "
                              "file can only name one; give llama.cpp the model's own files")
    first, last = tokenizer.around
    ends = [*tokenizer.ends]
    if last and last[0] not in ends:
        raise FormatError(f"its tokenizer puts the id {last[0]} after each text, and a GGUF file "
                          "can only say this of an id that ends one; make it an eos_token_id of "
                          "generation_config.json")
    if len(ends) > len(ENDS):
        raise FormatError(f"{len(ends)} ids end a text, and a GGUF file can name {len(ENDS)}; give "
                          "fewer as eos_token_id of generation_config.json")
    stated = {"add_bos_token": False} if pre in OF_LLAMA3 else {}
    if first:
        stated |= {"bos_token_id": first[0], "add_bos_token": True}
    if last:
        ends.sort(key=lambda id: id != last[0])     # it is the eos
        stated["add_eos_token"] = True
    return stated | dict(zip(ENDS, ends))


def without_end(tokenizer: Tokenizer) -> list[str]:
    """Return a line for the user if llama.cpp ends a text where the tokenizer ends none."""
    if tokenizer.unit == "character" or tokenizer.ends or tokenizer.vocab_size <= DEFAULT_ID:
        return []
    return [f"no end      the tokenizer has no token that ends a text, and llama.cpp takes the "
            f"token {DEFAULT_ID}, {shown(repr(tokenizer.vocabulary[DEFAULT_ID]))}, for one"]


def _flat(part, inner):
    """Return the parts of a pre-tokenizer or normalizer, without the sequences around them."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [each for one in part[inner] for each in _flat(one, inner)]
    return [part]


def _same(split):
    """Return the parts of a split, without what changes no id."""
    return [{key: value for key, value in part.items() if key != "trim_offsets"}
            for part in _flat(split, "pretokenizers")]


def _types(part):
    """Name the kinds of a pre-tokenizer or normalizer."""
    inner = "pretokenizers" if part and "pretokenizers" in part else "normalizers"
    return ", ".join(each["type"] for each in _flat(part, inner))


def _characters(vocabulary):
    """Return the metadata of a vocabulary of characters, as RWKV's tokenizer writes tokens: bytes
    as \\xff."""
    with explain("no GGUF file can hold half a pair of surrogates", "train on a text without it",
                 UnicodeEncodeError):
        tokens = ["".join(f"\\x{byte:02x}" for byte in c.encode()) for c in vocabulary]
    return {f"{TOKENS}model": "rwkv", CHARACTERS: vocabulary, f"{TOKENS}tokens": tokens,
            f"{TOKENS}token_type": [NORMAL] * len(tokens)}


def check(metadata: Mapping[str, object], tokenizer: Tokenizer) -> None:
    """Refuse the keys of a file if another program would read another tokenizer in them.

    Raises
    ------
    FormatError : it names a text that would have other ids, or other ids that end a text.
    """
    if isinstance(tokenizer, CharTokenizer):
        tokens = metadata[f"{TOKENS}tokens"]
        theirs = [bytes.fromhex(token.replace("\\x", "")).decode() for token in tokens]
        if theirs != [*tokenizer.vocabulary]:
            raise FormatError("its characters would be others in llama.cpp; this is a mistake of "
                              "this program")
        return
    remedy = "give llama.cpp the model's own files"
    with explain("its tokenizer cannot be written", remedy, Exception):
        ends = ends_of(metadata, tokenizer.vocab_size)
        other = TokenTokenizer(tokenizer_json(metadata), ends, tokenizer.vocab_size)
    if {*ends} != {*tokenizer.ends}:
        raise FormatError(f"llama.cpp would end a text at {ends}, and it ends at "
                          f"{[*tokenizer.ends]}; this is a mistake of this program")
    for i, (ours, theirs) in enumerate(zip(tokenizer.vocabulary, other.vocabulary)):
        if ours and ours != theirs:
            raise FormatError(f"llama.cpp would write the token {i} as {shown(repr(theirs))}, and "
                              f"its tokenizer.json says {shown(repr(ours))}; {remedy}")
    parts = tokenizer.parts()
    found = tokenizer.differing(other, probing_texts(tokenizer, parts["added_tokens"]))
    if found:
        text, ours, theirs = found
        flags = ", ".join(_unsaid(parts))
        raise FormatError(
            f"llama.cpp would read {shown(repr(text))} as {_few(theirs)}, and its tokenizer.json "
            f"says {_few(ours)}: a GGUF file cannot say all of it{flags and f' ({flags})'}; "
            f"{remedy}")


def probing_texts(tokenizer: Tokenizer, added_tokens: Iterable[Mapping[str, object]]
                  ) -> list[str]:
    """Return texts whose ids show how a tokenizer works: `PROBES`, the text of each token, and each
    added token alone, twice, within a word, between spaces, at the beginning and at the end."""
    texts = [*PROBES, *tokenizer.vocabulary]
    for added in added_tokens:
        name = added["content"]
        texts += [name, name * 2, f"a{name}b", f" {name} ", f"a  {name}  b", f"{name}a", f"a{name}",
                  f"\n{name}\n"]
    return texts


def _unsaid(found):
    """Name what a tokenizer.json says and no key of a GGUF file can."""
    names = ["ignore_merges", "end_of_word_suffix", "continuing_subword_prefix", "byte_fallback",
             "unk_token"]
    flags = ["single_word", "lstrip", "rstrip"]
    return [*(name for name in names if found["model"].get(name)),
            *(flag for flag in flags if any(added[flag] for added in found["added_tokens"]))]


def _few(ids):
    """Return the first few ids, as a text."""
    return str(ids[:6])[:-1] + (", ...]" if len(ids) > 6 else "]")
