"""What the words after --data stand for."""
import os
from pathlib import Path

import pytest

from data import KNOWN_TEXTS, TextError
from data.sources import sources


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    """With plays/1.txt, plays/10.md, plays/2.TXT, and others that are not taken."""
    monkeypatch.chdir(tmp_path)
    for name in ("plays/1.txt", "plays/2.TXT", "plays/10.md", "plays/x.py", "plays/.3.txt",
                 "plays/old/4.txt", "plays/older/5.txt", "plays/.git/6.txt", "a[b]c.txt", "abc.txt",
                 "empty/old/7.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)


def found(*words):
    return [name.replace(os.sep, "/") for name in sources(words, KNOWN_TEXTS)[0]]


def complaint(*words):
    with pytest.raises(TextError) as caught:
        sources(words, KNOWN_TEXTS)
    return str(caught.value)


def test_a_folder_is_its_texts_in_the_order_of_their_names_and_nothing_else():
    assert found("plays") == ["plays/1.txt", "plays/10.md", "plays/2.TXT"]
    _, left_out = sources(["plays"], KNOWN_TEXTS)
    assert [Path(folder).as_posix() for folder in left_out] == ["plays/old", "plays/older"]
    assert sources(["plays/old", "abc.txt"], KNOWN_TEXTS)[1] == []


def test_words_are_taken_in_their_order():
    assert found("plays/x.py", "shakespeare", "no.txt", "plays/old", "lantern") == [
        "plays/x.py", "shakespeare", "no.txt", "plays/old/4.txt", "lantern"]


def test_a_pattern_is_what_the_shell_would_make_of_it():
    assert found("plays/*") == [
        "plays/1.txt", "plays/10.md", "plays/2.TXT", "plays/old/4.txt", "plays/older/5.txt",
        "plays/x.py"]
    assert found("plays/[0-9].*") == ["plays/1.txt", "plays/2.TXT"]
    assert found("plays/?.txt", "plays/??.md") == ["plays/1.txt", "plays/10.md"]
    assert found("plays/**/*.txt") == ["plays/1.txt", "plays/old/4.txt", "plays/older/5.txt"]


def test_a_pattern_goes_through_each_folder_once_whatever_links_lead_to_it():
    for link in ("plays/a", "plays/b", "plays/old/c"):
        linked(os.path.abspath("plays"), link)
    linked(os.path.abspath("empty"), "plays/older/d")
    Path("empty/6.txt").write_text("6")
    everywhere = ["plays/1.txt", "plays/old/4.txt", "plays/older/5.txt", "plays/older/d/6.txt",
                  "plays/older/d/old/7.txt"]
    assert found("plays/**/*.txt") == found(os.path.join("pl*", "**", "*.txt")) == everywhere
    assert found("**/4.txt") == ["plays/old/4.txt"]
    assert found("./**/old/4.*") == ["plays/old/4.txt"]
    assert "no file matches" in complaint("plays/**/*.none")


def test_a_file_whose_name_looks_like_a_pattern_is_that_file():
    assert found("a[b]c.txt") == ["a[b]c.txt"]
    os.remove("a[b]c.txt")
    assert found("a[b]c.txt") == ["abc.txt"]


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert len(found("~/plays")) == 3 and len(found("~/plays/*.txt")) == 1


def linked(to, path):
    try:
        os.symlink(to, path)
    except OSError:
        pytest.skip("this system does not let everybody make links")


@pytest.mark.parametrize("words, says", [
    (["lantern", "lantern"], '"lantern" would be read twice; give each text once'),
    (["plays", "./plays/../plays/1.txt"], '"./plays/../plays/1.txt" would be read twice'),
    (["plays/**"], 'would be read twice'),
    (["*.md"], 'no file matches "*.md"; give a pattern that one does, or the path of a UTF-8 text '
               "file"),
    (["empty"], 'the folder "empty" has no .txt or .md file, and what is in its folders is not '
                'taken; give these, or "empty/**/*.txt"'),
    (["plays/.git/.."], None), (["nothing"], 'the folder "nothing" has no .txt or .md file; give '
                                             "another one, or files"),
    (["a\0/*"], 'cannot look for "a\0/*": '), (["a\0*"], 'no file matches "a\0*"')])
def test_words_that_stand_for_no_text_or_for_one_twice_are_refused(words, says):
    os.mkdir("nothing")
    assert sources(words, KNOWN_TEXTS) if says is None else says in complaint(*words)


@pytest.mark.parametrize("leads_to", ["nowhere.txt", "link.txt"])
def test_a_link_that_leads_nowhere_is_taken_so_that_it_is_refused_later(leads_to):
    linked(leads_to, "plays/link.txt")
    os.mkdir("plays/folder.txt")
    assert found("plays")[3:] == ["plays/link.txt"]


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0,
                    reason="whoever runs this may read everything")
def test_a_folder_that_may_not_be_read_is_named():
    os.chmod("plays", 0)
    try:
        assert 'cannot read the folder "plays": Permission denied' in complaint("plays")
    finally:
        os.chmod("plays", 0o700)


def test_a_link_to_a_file_that_is_taken_is_that_file_again():
    linked("abc.txt", "link.txt")
    assert complaint("abc.txt", "link.txt").startswith('"link.txt" would be read twice')
