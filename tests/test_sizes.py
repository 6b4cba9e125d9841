"""The report of sizes: what it counts, and what it compares."""
from tests import sizes
from tests.sizes import Size, report, size_of_page, size_of_python


def test_size_of_python_counts_tokens_without_comments_and_docstrings():
    assert size_of_python('"""Two.\n\nLines."""\n\n\ndef f(x):\n    """One."""\n    # none\n'
                          '    return (x +\n            f"a {x!r:{x}} b" f"""\n{f(1)}\n""")\n'
                          ) == Size(13, 5)


def test_size_of_page_counts_tokens_of_javascript_and_css_without_comments():
    assert size_of_page("/* None of\n   it. */\nconst a = b ?? `x\n${y}`; // none\n") == Size(7, 2)
    assert size_of_page("h3 {\n  margin-top: 1.4rem;\n}\n") == Size(9, 3)


def test_report_names_files_that_are_new_changed_and_gone():
    said = [*report({"train.py": Size(12, 4), "data/a.py": Size(5, 1), "data/same.py": Size(1, 1)},
                    {"train.py": Size(10, 4), "data/b.py": Size(7, 1), "data/same.py": Size(1, 1)})]
    assert [" ".join(line.split()) for line in said] == [
        "reading path 12 tokens +2 3.00 a line", "product 18 tokens +0 3.00 a line",
        "data/a.py 5 tokens +5", "data/b.py 0 tokens -7", "train.py 12 tokens +2"]


def test_main_says_why_it_has_nothing_to_compare_with(capsys):
    sizes.main(["no such commit"])
    said = capsys.readouterr().out
    assert said.startswith("nothing to compare with: git does not show no such commit: ")
    assert "reading path" in said
