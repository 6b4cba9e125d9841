"""What the words after --data stand for."""
import os
from pathlib import Path

import pytest

from data import KNOWN_TEXTS, TextError
from data.sources import folders
from data.sources.folders import expand, listed
from tests.kit import at_home, refusal


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    """With plays/1.txt, plays/10.md, plays/2.TXT, and others that are not taken."""
    monkeypatch.chdir(tmp_path)
    for name in ("plays/1.txt", "plays/2.TXT", "plays/10.md", "plays/x.py", "plays/.3.txt",
                 "plays/old/4.txt", "plays/older/5.txt", "plays/.git/6.txt", "a[b]c.txt", "abc.txt",
                 "empty/old/7.txt", "code/1.py", "code/2.py", "code/3.c", "code/.4.c", "code/5",
                 "more/a/1.[c]", "more/b/2.[c]", "more/b/3.d", "more/.e/4.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)


def found(*words):
    return [name.replace(os.sep, "/") for name in expand(words, KNOWN_TEXTS)[0]]


def linked(to, path):
    try:
        os.symlink(to, path)
    except OSError:
        pytest.skip("this system does not let everybody make links")


def test_a_folder_is_its_texts_in_the_order_of_their_names_and_nothing_else():
    assert found("plays") == ["plays/1.txt", "plays/10.md", "plays/2.TXT"]
    _, left_out = expand(["plays"], KNOWN_TEXTS)
    assert [Path(folder).as_posix() for folder in left_out] == ["plays/old", "plays/older"]
    assert expand(["plays/old", "abc.txt"], KNOWN_TEXTS)[1] == []


@pytest.mark.parametrize("words, taken", [
    ("plays/x.py shakespeare no.txt plays/old lantern",
     "plays/x.py shakespeare no.txt plays/old/4.txt lantern"),
    ("plays/*", "plays/1.txt plays/10.md plays/2.TXT plays/old/4.txt plays/older/5.txt plays/x.py"),
    ("plays/[0-9].*", "plays/1.txt plays/2.TXT"),
    ("plays/?.txt plays/??.md", "plays/1.txt plays/10.md"),
    ("plays/**/*.txt", "plays/1.txt plays/old/4.txt plays/older/5.txt"),
    ("**/4.txt", "plays/old/4.txt"), ("./**/old/4.*", "plays/old/4.txt"),
    ("a[b]c.txt", "a[b]c.txt"), ("a[b]*.txt", "abc.txt"), ("plays/.git/..", None)])
def test_words_and_patterns_are_taken_in_order_as_a_shell_would(words, taken):
    if taken is None:
        taken = "plays/.git/../1.txt plays/.git/../10.md plays/.git/../2.TXT"
    assert found(*words.split()) == taken.split()


def test_a_pattern_may_be_of_an_absolute_path_or_in_the_home_folder(tmp_path, monkeypatch):
    at_home(monkeypatch, tmp_path)
    assert len(found("~/plays")) == 3
    assert len(found("~/plays/*.txt")) == 1
    assert found(f"{tmp_path}/**/4.txt") == [(tmp_path / "plays/old/4.txt").as_posix()]


def test_a_pattern_goes_through_each_folder_once_whatever_links_lead_to_it():
    for link in ("plays/a", "plays/b", "plays/old/c"):
        linked(os.path.abspath("plays"), link)
    linked(os.path.abspath("empty"), "plays/older/d")
    Path("empty/6.txt").write_text("6")
    everywhere = ["plays/1.txt", "plays/old/4.txt", "plays/older/5.txt", "plays/older/d/6.txt",
                  "plays/older/d/old/7.txt"]
    assert found("plays/**/*.txt") == found(os.path.join("pl*", "**", "*.txt")) == everywhere


@pytest.mark.parametrize("words, says", [
    ("lantern lantern", '"lantern" would be read twice; give each text once'),
    ("plays ./plays/../plays/1.txt", '"./plays/../plays/1.txt" would be read twice'),
    ("plays/**", "would be read twice"), ("abc.txt link.txt", '"link.txt" would be read twice'),
    ("*.md", 'no file matches "*.md"; give another pattern, such as "*.txt", or the path of a '
             "UTF-8 text file"),
    ("plays/**/*.none", 'such as "plays/*.txt", or'), ("nowhere/a*/b", 'such as "*.txt", or'),
    ("a\0/*", "no file matches"), ("empty/old/*/*", 'such as "empty/old/*.txt", or'),
    ("nothing/*", "give another pattern, or the path"),
    ("empty", 'the folder "empty" has no .txt or .md file to read, and its subfolders are not '
              'taken; give another one, or files, such as "empty/**/*.txt"'),
    ("code", 'the folder "code" has no .txt or .md file to read; give another one, or files, such '
             'as "code/*.py"'),
    ("more", 'are not taken; give another one, or files, such as "more/**/*.[[]c]"'),
    ("nothing", 'folder "nothing" has no .txt or .md file to read; give another one, or files')])
def test_words_that_stand_for_no_text_or_for_one_twice_are_refused(words, says):
    os.mkdir("nothing")
    if "link" in words:
        linked("abc.txt", "link.txt")
    assert says in refusal(TextError, expand, words.split(), KNOWN_TEXTS)


@pytest.mark.parametrize("word", ["plays", "plays/*.txt", "plays/old/*", "pla*/**/*.md"])
def test_expand_says_of_a_folder_that_may_not_be_read_that_it_may_not(monkeypatch, word):
    scandir = os.scandir

    def forbidden(path):
        if os.path.abspath(path).startswith(os.path.abspath("plays")):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, forbidden)
    if "**" in word:
        assert "no file matches" in refusal(TextError, expand, [word], KNOWN_TEXTS)
    else:
        assert refusal(TextError, expand, [word], KNOWN_TEXTS) == (
            f'cannot read the folder "{os.path.dirname(word) or word}": Permission denied; give '
            "another one, or files")


def test_folders_are_each_yielded_once_where_a_link_leads_back_to_one_between():
    os.makedirs("top/a/b")
    linked(os.path.abspath("top/a"), "top/a/b/c")
    found = [Path(folder).as_posix() for folder in folders._folders("top")]
    assert found == ["top", "top/a", "top/a/b"]


@pytest.mark.parametrize("word", ["empty", "code", "more", "*.md", "code/*.txt", "[m]ore/*.md"])
def test_expand_takes_the_pattern_that_it_names(word):
    said = refusal(TextError, expand, [word], KNOWN_TEXTS)
    assert found(said.split('such as "')[1].split('"')[0])


@pytest.mark.parametrize("leads_to", ["nowhere.txt", "link.txt"])
def test_a_link_that_leads_nowhere_is_taken_so_that_it_is_refused_later(leads_to):
    linked(leads_to, "plays/link.txt")
    os.mkdir("plays/folder.txt")
    assert found("plays")[3:] == ["plays/link.txt"]


@pytest.mark.parametrize("taken, left_out, lines", [
    ([("a", 1_000)], ["b/c"], ["    1,000 characters in a", "not taken: what is in b/c"]),
    ([("a\n", 5), ("b", 1)], [], ["        5 characters in a\\n", "         1 character in b"]),
    ([("a", 1_000)] * 101, [], ["    1,000 characters in a"] * 100
     + ["    1,000 characters in 1 more file"]),
    ([("a", 1_000)] * 2_100, [], ["    1,000 characters in a"] * 100
     + ["2,000,000 characters in 2,000 more files"])])
def test_of_many_files_the_first_are_listed_and_the_others_counted(taken, left_out, lines):
    assert listed(taken, left_out) == "\n            ".join(lines)
