"""Files are the book, folders are rooms that are plugged into it.

The book is a complete program in plain NumPy.  Nothing of it imports a room when it is loaded.
"""
import ast
import functools
import graphlib
import pathlib
import re
import sys

import pytest

from tests.sizes import READING_PATH, sizes_here, total
from tests.sources import defined_in, tree_of

ROOT = pathlib.Path(__file__).parents[1]
# Folders of the book; all others of `minigrad` and `model` are rooms.
CHAPTERS = ("data",)
# What each room imports from other rooms.
ROOMS = {
    "data.sources": [],
    "minigrad.kernels": [],
    "minigrad.watch": [],
    "model.chat": ["model.convert", "model.interactive"],
    "model.convert": ["model.count", "model.lora"],
    "model.count": ["minigrad.watch"],
    "model.counted": ["minigrad.kernels", "model.score"],
    "model.explain": ["minigrad.watch"],
    "model.interactive": [],
    "model.kv_cache": ["minigrad.kernels"],
    "model.lora": ["model.count"],
    "model.look": ["model.reverse", "model.score"],
    "model.ranks": [],
    "model.replay": ["minigrad.watch"],
    "model.reverse": ["model.count", "model.variants"],
    "model.same": ["minigrad.watch"],
    "model.score": [],
    "model.variants": [],
    "model.walk": ["minigrad.watch", "model.look", "model.reverse", "model.variants"],
}
# In the book, a file imports only from its own row and the rows below it.
ROWS = [
    ["train", "model.sample"],
    ["model.report"],
    ["model.run"],
    ["model.beginning"],
    ["model.folder"],
    ["model.settings"],
    ["model"],
    ["model.generation", "model.scoring"],
    ["model.checkpoint", "model.cache"],
    ["model.transformer"],
    ["model.config", "model.attention"],
    ["model.layers"],
    ["model.processes"],
    ["model.command"],
    ["model.answers", "model.interrupts", "model.options"],
    ["data"],
    ["model.start"],
    ["minigrad"],
    ["minigrad.nn"],
    ["minigrad.optim", "minigrad.gradcheck", "minigrad.module"],
    ["minigrad.ops", "minigrad.habits"],
    ["minigrad.elementwise", "minigrad.shapes", "minigrad.network"],
    ["minigrad.packed"],
    ["minigrad.core", "minigrad.random", "minigrad.compiled"],
    ["minigrad.formulas", "minigrad.machine", "minigrad.gradients", "minigrad.changes",
     "minigrad.operators", "minigrad.words"],
    ["minigrad.plug"],
]
FLOOR = {name: -row for row, names in enumerate(ROWS) for name in names}
# Tokens of code at most: a room for growth, no aim.  Comments and docstrings are free.
MOST_TOKENS = {"reading path": 34_800, "product": 230_000}
MOST_FILES = 20         # of a folder
MOST_LINES = 60         # of a function


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for folder in ("minigrad", "model", "data")
         for path in (ROOT / folder).rglob("*.py")} | {"train": ROOT / "train.py"}


@functools.cache
def imports(path, loading=False):
    """Every module that a file imports, or only those that it imports when it is loaded."""
    found = set()
    tree = tree_of(path)
    inside = {node for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)
              for node in ast.walk(f)} if loading else set()
    for node in ast.walk(tree):
        if node in inside:
            continue
        if isinstance(node, ast.ImportFrom):
            found |= ({f"{node.module}.{a.name}" for a in node.names} & FILES.keys()
                      or {node.module})
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return found


imports_when_loaded = functools.partial(imports, loading=True)


def room_of(name):
    """The room that a file is in; None for the book."""
    return next((room for room in ROOMS if f"{name}.".startswith(f"{room}.")), None)


def floor(name):
    """The row of a file of the book."""
    while name not in FLOOR:
        name = name.rpartition(".")[0]
    return FLOOR[name]


BOOK = {name: path for name, path in FILES.items() if room_of(name) is None}


def test_every_folder_is_a_room_or_a_chapter_of_the_book():
    for name, path in FILES.items():
        folder = ".".join(path.relative_to(ROOT).parent.parts)
        assert folder in ("", "minigrad", "model", *CHAPTERS) or room_of(name), folder


def test_nothing_of_the_book_imports_a_room_or_numba_when_it_is_loaded():
    for name, path in BOOK.items():
        for target in imports_when_loaded(path):
            assert room_of(target) is None, f"{name} imports {target}"
            assert target.split(".")[0] not in ("numba", "llvmlite"), f"{name} imports {target}"


def test_a_room_imports_other_rooms_only_as_the_table_says():
    for name in FILES.keys() - BOOK.keys():
        rooms = {room_of(target) for target in imports_when_loaded(FILES[name])} - {None}
        assert rooms <= {room_of(name), *ROOMS[room_of(name)]}, f"{name} imports {rooms}"


def test_in_the_book_imports_only_go_down():
    for name, path in BOOK.items():
        for target in imports_when_loaded(path) & FILES.keys():
            assert floor(target) <= floor(name), f"{name} must not import {target}"


def loaded_with(name):
    """The files that a file imports when it is loaded, and those that they import."""
    found = set()
    more = {name}
    while more:
        found |= more
        more = {target for file in more for target in imports_when_loaded(FILES[file])}
        more = (more & FILES.keys()) - found
    return found


def test_the_configuration_of_a_network_loads_nothing_of_a_command_line():
    files = loaded_with("model.config")
    assert {"model.config", "model.options", "minigrad.core"} <= files
    for name in files:
        parts = {target.split(".")[0] for target in imports_when_loaded(FILES[name])}
        unwanted = {"argparse", "signal", "subprocess", "shlex", "threading"}
        if name == "minigrad.core":             # it has a lock
            unwanted.remove("threading")
        assert not parts & unwanted, f"{name} imports {parts & unwanted}"


def circle_of(files):
    """Files that import one another in a circle, also inside functions; "" if none do."""
    graph = {name: imports(path) & files.keys() for name, path in files.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return " <- ".join(error.args[1])
    return ""


def test_no_file_imports_in_a_circle_not_even_inside_functions(tmp_path):
    assert circle_of(FILES) == ""
    texts = {"above": "def f():\n    from below import g\n", "below": "import above\n"}
    planted = {name: tmp_path / name for name in texts}
    for name, path in planted.items():
        path.write_text(texts[name], encoding="utf-8")
    assert circle_of(planted) in ("above <- below <- above", "below <- above <- below")


def test_every_folder_says_in_its_first_line_what_it_is_for():
    for path in FILES.values():
        if path.name == "__init__.py":
            first = ast.get_docstring(tree_of(path)) or ""
            assert first.partition("\n")[0].endswith((".", ":")), path


def test_nothing_but_numpy_numba_and_tqdm_is_needed():
    allowed = ({"numpy", "numba", "llvmlite", "tqdm", "minigrad", "model", "data", "train"}
               | sys.stdlib_module_names)
    for name, path in FILES.items():
        for target in imports_when_loaded(path):
            assert target.split(".")[0] in allowed, f"{name} imports {target}"


def test_the_reading_path_and_the_product_stay_small_enough_to_read():
    sizes = sizes_here()
    assert {*READING_PATH} <= sizes.keys()
    assert total(sizes, READING_PATH).tokens <= MOST_TOKENS["reading path"]
    assert total(sizes, sizes).tokens <= MOST_TOKENS["product"]


def test_no_folder_and_no_function_is_too_long_to_take_in():
    for folder in {path.parent for path in FILES.values()}:
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MOST_FILES, f"{folder} has {len(files)} files; part it"
    for path in FILES.values():
        for f in ast.walk(tree_of(path)):
            if isinstance(f, ast.FunctionDef):
                length = f.end_lineno - f.lineno + 1
                assert length <= MOST_LINES, f"{path}: {f.name} has {length}"


@pytest.mark.parametrize("page, least", [("README.md", 12), ("docs/map.md", 20)])
def test_what_a_page_says_is_in_a_file_is_defined_there(page, least):
    rows = re.findall(r"^\| .+ \| `([\w/]+\.py)` \| (`.+`) \|$",
                      (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert len(rows) >= least
    for file, names in rows:
        assert {*re.findall(r"`(\w+)`", names)} <= {*defined_in(ROOT / file)}, f"{names} in {file}"


def test_the_readme_has_at_most_200_lines():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def the_map():
    return (ROOT / "docs" / "map.md").read_text(encoding="utf-8")


def test_the_map_names_every_file_beside_its_folder():
    tree = the_map().partition("```\ntrain.py ")[2]
    said = dict(re.findall(r"^ {0,4}(\w+)/\s(.+?)(?=^ {0,4}\w+/\s)", tree, re.M | re.S))
    for path in {*FILES.values()} - {ROOT / "train.py"}:
        found = tree if path.parent.parent == ROOT else (
            said.get(path.parent.name) or said[path.parent.parent.name])
        if not re.match(r"__|e\d_", path.stem):         # no package, no exercise
            assert re.search(rf"\b{path.stem}\b", found), f"{path} is not in {found}"


def drawn_in_the_map():
    drawing, = re.findall(r"^```\n(train\.py .*?)^```", the_map(), re.M | re.S)
    folders = []
    for names in (row[:25] for row in drawing.splitlines()):    # what they are stands beside them
        for name in re.findall(r"\w+", names.replace(".py", "")):
            folders[re.match(" *", names).end() // 2:] = [name]
            yield ".".join(folders)


def test_the_drawing_in_the_map_has_every_room_and_each_file_that_it_names():
    drawn = set(drawn_in_the_map())
    for name in drawn:
        path = ROOT.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").exists(), path
    assert {*ROOMS, *CHAPTERS} <= drawn


def test_the_table_in_the_map_says_which_room_imports_which():
    said = {}
    for rooms, imports in re.findall(r"^\| (`m[\w/`, ]+) \| (`m[\w/`, ]+) \|$", the_map(), re.M):
        names = [[path.strip("/").replace("/", ".") for path in re.findall(r"`([^`]+)`", cell)]
                 for cell in (rooms, imports)]
        said |= dict.fromkeys(names[0], names[1])
    assert said == {room: to for room, to in ROOMS.items() if to}


def test_no_file_of_tests_imports_another_one():
    """What several need has a file of its own, such as tests/kit.py, so that each can be changed
    alone."""
    for path in (ROOT / "tests").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for whole in re.findall(r"^ *(?:from|import) (?:\\\n|[^(\n]|\([^)]*\))+", source, re.M):
            assert not re.search(r"\btest_\w+", whole), f"{path}: {whole}"
