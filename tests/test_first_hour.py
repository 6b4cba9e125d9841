"""docs/first_hour.ipynb runs from top to bottom; and train.py runs in a notebook."""
import importlib
import os

import pytest

from tests.kit import ROOT

pytestmark = [pytest.mark.late, pytest.mark.needs("notebook")]


@pytest.fixture
def executed(monkeypatch):
    """A function that runs a notebook in a kernel of its own, in a folder, and returns its cells of
    code."""
    nbclient = importlib.import_module("nbclient")
    nbformat = importlib.import_module("nbformat")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)

    def execute(notebook, folder, **settings):
        if isinstance(notebook, list):
            cells = [nbformat.v4.new_code_cell(line) for line in notebook]
            notebook = nbformat.v4.new_notebook(cells=cells)
        else:
            notebook = nbformat.read(notebook, as_version=4)
            nbformat.validate(notebook)
        nbclient.NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            **settings).execute()
        return [cell for cell in notebook.cells if cell.cell_type == "code"]
    return execute


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_the_notebook_runs_draws_and_learns(executed):
    cells = executed(ROOT / "docs/first_hour.ipynb", ROOT / "docs")
    drawn = [output for cell in cells for output in cell.outputs
             if "image/png" in output.get("data", {})]
    assert len(drawn) == 3
    said, = [printed(cell) for cell in cells if "STEPS = " in cell.source]
    first, last = (float(number) for number in said.removeprefix("from ").split(" to "))
    assert 4 < first < 4.6 and last < 2.6       # below all that single letters tell
    assert len(printed(cells[-1])) > 150


def test_the_notebook_is_kept_without_what_it_printed_last():
    text = (ROOT / "docs/first_hour.ipynb").read_text(encoding="utf-8")
    assert '"outputs": []' in text and '"output_type"' not in text


def test_train_runs_in_a_notebook_with_its_flags_and_a_mistake_is_told_in_a_line(
        executed, small_text, tmp_path):
    flags = f"--data {small_text} --out_dir {tmp_path / 'out'} --n_layer 1 --n_embd 16 --n_head 2"
    train = f"%run {ROOT / 'train.py'} {flags} --block_size 16 --batch_size 4 --ngram_rows 64"
    run, wrong, after = executed(
        [f"{train} --max_iters 4", f"{train} --bias=false", "print(6 * 7)"],
        tmp_path,
        allow_errors=True)
    said = printed(run)
    assert not [output for output in run.outputs if output.output_type == "error"], said
    assert "step      4   training" in said and "\r" not in said        # lines, no moving bar
    assert "a sample:" in said and "more of it:" in said
    assert (tmp_path / "out/ckpt.npz").exists()
    assert printed(wrong).startswith("train.py: error: --bias takes no value")
    error, = [output for output in wrong.outputs if output.output_type == "error"]
    assert error.ename == "SystemExit" and "File " not in "".join(error.traceback)
    assert printed(after) == "42\n"
