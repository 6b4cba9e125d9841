"""The folder of a run: the commands that go on from it.  test_run.py has what runs do in one."""
import pytest

from model.run import Folder


@pytest.mark.parametrize("text, more", [
    ("", ""), ("lantern", ""), ("my texts/a.txt", ""), ("/dev/stdin", " --data FILE"),
    ("/dev/../dev/fd/3", " --data FILE"), ("/proc/self/fd/0", " --data FILE")])
def test_a_text_that_was_piped_in_is_asked_for_in_a_file(text, more):
    command = "python train.py --init_from resume --out_dir 'my run'"
    assert Folder("my run").resume_command(["lantern", text]) == command + more


def test_a_folder_in_the_users_home_is_found_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert Folder("~/out").path == tmp_path / "out" and not Folder("~/out").holds_run()
