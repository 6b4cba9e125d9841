"""The command: a question is answered, a conversation is typed, and what means nothing is refused.
"""
import io
import sys

import pytest

from model import generate, sample, save_checkpoint
from tests.kit import refused
from tests.model.chat.chats import chat_model, chat_tokenizer

pytestmark = [pytest.mark.needs("gguf"), pytest.mark.late]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chat")
    save_checkpoint(path / "ckpt.npz", chat_model(), chat_tokenizer())
    return path


def command(folder, *words):
    return ["--out_dir", str(folder), "--max_new_tokens", "8", "--temperature", "0", *words]


def written(prompt):
    return generate(chat_model(), chat_tokenizer(), prompt, 8, 0)[len(prompt):]


def test_chat_prints_the_answer_alone(folder, capsys):
    sample.main(command(folder, "--chat", "the in"))
    assert capsys.readouterr().out == written("[user]the in<|end|>\n[assistant]") + "\n"


def test_chat_tells_the_model_the_system_text_first(folder, capsys, tmp_path):
    (tmp_path / "told.txt").write_text("be kind")
    sample.main(command(folder, "--chat", "the in", "--system", f"FILE:{tmp_path / 'told.txt'}"))
    prompt = "[system]be kind<|end|>\n[user]the in<|end|>\n[assistant]"
    assert capsys.readouterr().out == written(prompt) + "\n"


def test_interactive_chats_with_a_model_that_was_made_to(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the in\n\nWhy?\n"))
    sample.main(command(folder, "--interactive"))
    first = written("[user]the in<|end|>\n[assistant]")
    second = written(f"[user]the in<|end|>\n[assistant]{first}<|end|>\n[user]Why?<|end|>\n"
                     "[assistant]")
    assert capsys.readouterr().out == f"{first}\n{second}\n"


def test_start_of_a_model_made_to_chat_says_how_to_ask(folder, capsys):
    sample.main(command(folder, "--start", "the in"))
    assert ("this model was made to answer, and continues a text here; ask it by --chat\n"
            in capsys.readouterr().err)


@pytest.mark.parametrize("words, why", [
    pytest.param(["--chat", "a", "--start", "b"], "leave out one", id="start"),
    pytest.param(["--system", "a"], "give --chat or --interactive", id="system alone"),
    pytest.param(["--chat", ""], "an empty one was given", id="empty"),
    pytest.param(["--chat", "a", "--num_samples", "2", "--slide"],
                 "leave out --num_samples, --slide", id="of continuations"),
    pytest.param(["--chat", "a", "--score", "lantern"], "leave out --chat", id="score")])
def test_chat_refuses_what_means_nothing_in_a_conversation(folder, capsys, words, why):
    assert why in refused(capsys, *command(folder, *words), main=sample.main)


def test_chat_with_a_model_that_brought_no_template_is_refused(trained, capsys):
    said = refused(capsys, "--out_dir", str(trained), "--chat", "a", main=sample.main)
    assert "this model brought no chat template" in said
