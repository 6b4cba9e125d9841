"""Guess in which encoding a text is that is not in UTF-8.

A text is decoded in every way that is usual, and each is given the probability that somebody wrote
it in one of some languages: a few letters come again and again in a language, and hardly any of
another script.  A wrong decoding has letters of many scripts, and rare ones.
"""
import codecs
import re
import unicodedata
from collections import Counter
from itertools import pairwise
from math import log
from typing import NamedTuple

SAMPLE = 8192           # bytes that are judged, from the first line with one that is not ASCII
BEFORE = 20             # bytes at most that are judged before that one
SHOWN = 24              # characters of a guess that a message shows
CLOSE = log(100)        # two guesses are both named if one is not so much likelier than the other
MARKS = {"UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),      # which UTF-16's begin like
         "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)}
WIDE = ("UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE")

# The probability of a character of ASCII, or a sign; of all common letters of a language, of its
# common capitals, and of its other letters, together; and of one that its texts hardly have.
ASCII, COMMON, CAPITAL, OTHER, FOREIGN = 0.01, 0.75, 0.15, 0.2, 1e-8
INSIDE = 0.01           # of a capital, or a letter of another alphabet, after a small one
NOISE = 0.002           # of a byte, not ASCII, of something that is no text
RARER = 0.3             # than the usual encoding of a language is each further one
PLAIN = {*map(chr, range(32, 127)), *"\t\n\r\f"}
SIGNS = "\xa0€£§°©®·•×½²³№’‘“”„–—…«»¿¡、。，！？：；（）「」『』《》・،؟؛"


class Language(NamedTuple):
    """How texts in a language, or in some like it, are encoded where they are not in UTF-8."""

    script: str         # as the names of its letters in Unicode begin; or some
    common: str         # the commonest letters that are not ASCII, as small letters
    encodings: str      # as Python and iconv call them; the usual one first
    others: int = 60    # the number of further letters
    known: str = "UTF-8"    # the encoding that has them: another letter is rare


WESTERN = "CP1252 CP850 MACINTOSH"
CENTRAL = "CP1250 ISO-8859-2"
LANGUAGES = (
    Language("LATIN", "’“”‘–—…", "CP1252 MACINTOSH"),       # English
    Language("LATIN", "äöüß", WESTERN),
    Language("LATIN", "éèàêçùâîôûëïœ«»", WESTERN),
    Language("LATIN", "áéíóúñü¿¡", WESTERN),
    Language("LATIN", "ãçéáõíêó", WESTERN),
    Language("LATIN", "àèéìòù", WESTERN),
    Language("LATIN", "åäöæø", WESTERN),
    Language("LATIN", "áéíóúýþðæö", WESTERN),
    Language("LATIN", "ąćęłńóśźż", CENTRAL),
    Language("LATIN", "áčďéěíňóřšťúůýžľĺŕäô", CENTRAL),
    Language("LATIN", "áéíóöőúüű", CENTRAL),
    Language("LATIN", "čćžšđ", CENTRAL),
    Language("LATIN", "ăâîşţ", CENTRAL),
    Language("LATIN", "çğıöşüâî", "CP1254"),
    Language("LATIN", "āčēģīķļņšūžąęėįųõäöü", "CP1257"),
    Language("CYRILLIC", "оеаинтсрвлкіу", "CP1251 KOI8-R KOI8-U CP866 ISO-8859-5"),
    Language("GREEK", "αοιετνσηρπκςάίόέήύώ", "CP1253 ISO-8859-7"),
    Language("HEBREW", "יוהלאתרמבשנםק", "CP1255"),
    Language("ARABIC", "اليمونرتبةعدسفهكپگ", "CP1256 ISO-8859-6"),
    Language("THAI", "านรอกเงมยลวดทสตะปบคหแจพชใไขโผัี่้ิ์ื็ุู", "CP874"),
    Language("CJK", "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自"
                    "之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其"
                    "些主样理心她本", "GB18030", 7000, "GB2312"),
    Language("CJK", "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自"
                    "之年過發後作裡用道行所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其"
                    "些主樣理心她本", "BIG5 CP950 BIG5-HKSCS", 9000, "BIG5"),
    Language("HIRAGANA KATAKANA CJK", "あいうかがきくけこさしすせそただちっつてでとどなにのはばひへまもや"
             "ゆよらりるれろわをんーアイスルント", "SHIFT_JIS CP932 EUC-JP", 7000, "SHIFT_JIS"),
    Language("HANGUL", "이다는을의가에고하은지를한도로사리기니나어라자서인게시그만해아대들있정수일오부주",
             "EUC-KR CP949", 2350, "EUC-KR"),
)
ALPHABETS = ("CYRILLIC", "GREEK", "HEBREW", "ARABIC", "THAI")
TWO_SCRIPTS = r"[A-Za-z](?=[^\W\d_A-Za-z])|[^\W\d_A-Za-z](?=[A-Za-z])"     # within a word


class Guess(NamedTuple):
    """An encoding that a file may have."""

    encoding: str
    words: str          # of its first line that is not ASCII
    first: bool         # whether the file begins with these
    unreadable: int     # places of the file that are not of this encoding


def marked(raw: bytes) -> str | None:
    """Return "UTF-16" or "UTF-32" if a byte order mark at the start says so."""
    return next((name for name, marks in MARKS.items() if raw.startswith(marks)), None)


def guesses(raw: bytes) -> list[Guess]:
    """Return the one or two encodings that a text is most likely to have; none if it is likelier
    that it is no text."""
    match = re.search(rb"[\x80-\xff]", raw)
    place = match.start() if match else 0
    start = max(raw.rfind(b"\n", 0, place) + 1, place - BEFORE) // 4 * 4    # for UTF-16 and UTF-32
    first = b"\n" not in raw[:place] and start == 0
    sample = raw[start:start + SAMPLE]
    plain = sum(chr(byte) in PLAIN for byte in sample)
    least = plain * log(ASCII) + (len(sample) - plain) * log(NOISE)
    texts = {}
    capitals = {}
    likely = {}
    for language in LANGUAGES:
        own = language.encodings.split()
        for name in ("UTF-8", *own, *WIDE):
            if name not in texts:
                text = texts[name] = _decoded(sample, name)
                capitals[name] = sum(a.islower() and b.isupper() for a, b in pairwise(text))
            p = _log_probability(texts[name], language) + capitals[name] * log(INSIDE)
            if name in own:
                p += own.index(name) * log(RARER)
            likely[name] = max(likely.get(name, least), p)
    likely = {name: p for name, p in likely.items() if p > max(least, max(likely.values()) - CLOSE)}
    alike = {}          # names of encodings by the words that they give
    for name in sorted(likely, key=likely.get, reverse=True):
        alike.setdefault(_shown(texts[name]), []).append(name)
    return [min((Guess(name, words, first, raw.decode(name, "replace").count("\ufffd"))
                 for name in names), key=lambda guess: guess.unreadable)
            for words, names in [*alike.items()][:2]]


def _shown(text):
    """Return the first words of a text's first line that is not ASCII."""
    lines = text.splitlines()
    line = next((line for line in lines if not line.isascii()), lines[0])
    return " ".join(line.split())[:SHOWN]


def _decoded(sample, name):
    """Return a text with U+FFFD for what cannot be decoded, also at its end."""
    decoder = codecs.getincrementaldecoder(name)("strict" if name in WIDE else "replace")
    try:
        text = decoder.decode(sample)
    except UnicodeDecodeError:      # four bytes of UTF-32 that are no character are no mistake
        return "\ufffd" * len(sample)
    return text + "\ufffd" * len(decoder.getstate()[0])


def _log_probability(text, language):
    """Return the logarithm of the probability that a text is of a language."""
    if language.script != "LATIN" and re.sub(r"[\x00-\x7f]", "", text).isupper():     # a title
        text = text.lower()
    sum_of_logs = sum(count * log(_probability(c, language)) for c, count in Counter(text).items())
    if language.script in ALPHABETS:
        sum_of_logs += len(re.findall(TWO_SCRIPTS, text)) * log(INSIDE)
    return sum_of_logs


def _probability(c, language):
    if c in language.common:
        return COMMON / len(language.common)
    if c in PLAIN or c in SIGNS:
        return ASCII
    if c.lower() in language.common:
        return CAPITAL / len(language.common)
    script = unicodedata.name(c, "no name").split()[0]
    if script in language.script.split() and c.encode(language.known, "ignore"):
        return OTHER / language.others
    return FOREIGN
