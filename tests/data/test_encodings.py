"""In which encoding a text is, guessed from real sentences."""
import numpy as np
import pytest

from data.encodings import LANGUAGES, WIDE, guesses, marked

SENTENCES = {
    "GB18030": ["今天天气很好，我们去公园散步。孩子们在湖边放风筝。", "红楼梦 三国演义 水浒传 西游记",
                "我昨天用Python写了一个小程序，它可以download网页。"],
    "BIG5": ["今天天氣很好，我們去公園散步。孩子們在湖邊放風箏。",
             "春眠不覺曉，處處聞啼鳥。夜來風雨聲，花落知多少。",
             "昨天我用Python寫了一個程式，可以download網頁。"],
    "SHIFT_JIS": ["今日はいい天気ですね。公園へ散歩に行きましょう。", "昨日Pythonでプログラムを書いた。Helloと表示される。"],
    "EUC-JP": ["今日はいい天気ですね。公園へ散歩に行きましょう。", "コンピュータのプログラムをダウンロードする。"],
    "EUC-KR": ["오늘은 날씨가 참 좋습니다. 우리는 공원으로 갔습니다.", "어제 Python으로 작은 프로그램을 만들었다."],
    "CP1251": ["Сегодня хорошая погода, и мы пошли в парк. Дети играли.", "ПРОЛОГ. ДЕЙСТВИЕ ПЕРВОЕ",
               "Вчера я написал программу на Python. Она работает."],
    "KOI8-R": ["Сегодня хорошая погода, и мы пошли в парк. Дети играли."],
    "CP866": ["Сегодня хорошая погода, и мы пошли в парк. Дети играли."],
    "CP1253": ["Σήμερα ο καιρός είναι καλός και πήγαμε για περίπατο."],
    "ISO-8859-7": ["Άνθρωποι, Έλληνες: ο καιρός είναι καλός και πήγαμε για περίπατο, Άννα."],
    "CP1255": ["היום מזג האוויר יפה והלכנו לטייל בפארק."],
    "CP1256": ["الطقس جميل اليوم وذهبنا للتنزه في الحديقة."],
    "CP874": ["วันนี้อากาศดีมาก เราไปเดินเล่นที่สวนสาธารณะ"],
    "CP1252": ["Heute ist schönes Wetter, und wir gehen über die Straße.",
               "Il était gêné à la fête, où ça sentait.",
               "¿Qué pasó con el niño? Él está aquí mañana.",
               "Vi går på stranden, og æblerne er røde.",
               "“Don’t go,” she said — “not yet…”", "Preis: 5 € und 20 °C", "un café"],
    "CP1250": ["Dzisiaj jest piękna pogoda, więc poszliśmy na spacer. Źle, żółć.",
               "Dnes je krásné počasí, a tak jsme šli. Příliš žluťoučký kůň.",
               "Őszi erdő, hűvös szellő, és elmentünk a tó mellé."],
    "ISO-8859-2": ["Dzieci bawiły się nad jeziorem, źle, żółć, więc poszliśmy, śnieg i łąka."],
    "CP1254": ["Bugün hava çok güzel, ağaç, ışık, şeker, yağmur."],
    "CP1257": ["Šiandien gražus oras, ėjome pasivaikščioti, ąžuolas, įdomu."],
}
CASES = [(name, text) for name, texts in SENTENCES.items() for text in texts]
MANY = [*CASES, *((name, text) for name in WIDE for text in
                  ("Hear me speak.", "今天天气很好，我们去公园。", "Сегодня хорошая погода.", "Schönes Wetter"))]


def first(raw, name):
    """The likeliest guess, if its encoding reads a text as that of this name does."""
    likeliest, *_ = *guesses(raw), None
    if likeliest and raw.decode(likeliest.encoding, "replace") == raw.decode(name, "replace"):
        return likeliest


@pytest.mark.parametrize("name, text", MANY)
def test_guesses_reads_a_sentence_as_it_was_written(name, text):
    raw = text.encode(name)
    found, *other = guesses(raw)
    assert raw.decode(found.encoding) == text
    assert found.words == " ".join(text.split())[:24] and found.first and not found.unreadable
    assert len(other) <= 1 and all(guess.words != found.words for guess in other)


@pytest.mark.parametrize("name, text", MANY)
def test_guesses_finds_a_sentence_far_in_a_file_and_within_a_long_line(name, text):
    for before in ("A line of ASCII.\n" * 9999, "one long line " * 9999):
        raw = f"{before}{text}\nand more\n".encode(name)
        found = first(raw, name)
        assert found
        assert name in WIDE or not found.first


@pytest.mark.parametrize("name, text", MANY)
def test_guesses_is_right_where_a_text_begins_and_ends_in_the_middle_of_a_character(name, text):
    raw = "\n".join(9 * [text]).encode(name)
    assert first(raw[:-1], name)
    assert name in WIDE or first(raw[1:], name)


@pytest.mark.parametrize("text", ["Привет, мир!", "今天天气很好", "Il était gêné à la fête"])
def test_guesses_counts_the_damaged_places_of_a_text(text):
    raw = "\n".join(20 * [text]).encode()
    found, *_ = guesses(raw + b"\xff" + raw + b"\xff\xff")
    assert found.encoding == "UTF-8" and found.unreadable == 3


def test_guesses_takes_the_encoding_that_reads_the_whole_of_a_long_file():
    raw = ("これはプログラムです。\n" * 999 + "①").encode("CP932")
    assert [guess.encoding for guess in guesses(raw)] == ["CP932"]
    assert [guess.encoding for guess in guesses(raw[:-2])] == ["SHIFT_JIS"]


def test_guesses_names_two_encodings_that_nobody_can_tell_from_each_other():
    found = guesses("Amanhã não".encode("CP1252"))
    assert {guess.words for guess in found} == {"Amanhã não", "Amanhă năo"}


@pytest.mark.parametrize("seed", range(20))
def test_guesses_finds_no_encoding_of_what_is_no_text(seed):
    draw = np.random.default_rng(seed)
    assert guesses(draw.bytes(200)) == []
    assert guesses(draw.zipf(1.3, 2000).clip(0, 50256).astype(np.uint16).tobytes()) == []


def test_marked_knows_each_byte_order_mark():
    assert marked("a".encode("UTF-16")) == "UTF-16" and marked("a".encode("UTF-32")) == "UTF-32"
    assert marked("\ufeffa".encode("UTF-16BE")) == "UTF-16"
    assert marked("\ufeffa".encode("UTF-32BE")) == "UTF-32"
    assert marked(b"\xef\xbb\xbfa") is marked(b"") is None


def test_the_common_letters_of_a_language_are_in_its_encodings_and_of_its_scripts():
    for language in LANGUAGES:
        assert len({*language.common}) == len(language.common), language
        for c in language.common:
            assert c == c.lower() and any(c.encode(name, "ignore")
                                          for name in language.encodings.split()), c
