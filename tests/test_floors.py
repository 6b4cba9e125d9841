"""The house: a room imports only from the rooms below it, and no file imports in a circle."""
import ast
import functools
import graphlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[1]
# From the top down.  A room is a folder; of a folder whose own files are more than one room, those
# that are named stand apart, and all others are the last.
ROOMS = ["train",
         "model.sample model.look model.count model.reverse model.walk model.convert",
         "model.look model.replay model.ranks",
         "model.training",
         "model.sampling",
         "model.convert",
         "model.storage",
         "model",
         "model.processes",
         "model.console",
         "minigrad.watch",
         "minigrad.kernels",
         "minigrad.kernels.compiler",
         "minigrad",
         "minigrad.optim minigrad.muon minigrad.gradcheck minigrad.module",
         "minigrad.ops",
         "minigrad.core minigrad.formulas",
         "minigrad.random minigrad.machine minigrad.compiled",
         "data"]
MOST_FILES = 14
# What is plugged into a package: no file of it imports these when it is loaded.
PLUGGED_IN = {"minigrad": ("minigrad.kernels", "minigrad.watch")}
FLOOR = {name: -floor for floor, room in enumerate(ROOMS) for name in room.split()}
# What a package offers to its users is gathered from its rooms, and no file below takes it there.
PUBLIC = {"model": "model.sample", "minigrad": "minigrad"}


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def files():
    return {name_of(path): path for folder in ("minigrad", "model", "data")
            for path in (ROOT / folder).rglob("*.py")} | {"train": ROOT / "train.py"}


FILES = files()


@functools.cache
def imports_at_the_top(path):
    """Every module that a file imports when it is loaded."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {node for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)
              for node in ast.walk(f)}
    for node in ast.walk(tree):
        if node in inside:
            continue
        if isinstance(node, ast.ImportFrom):
            found |= ({f"{node.module}.{a.name}" for a in node.names} & FILES.keys()
                      or {node.module})
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return found


def floor(name):
    """Of the room that a file is in."""
    if name in PUBLIC:
        return FLOOR[PUBLIC[name]]
    while name not in FLOOR:
        name = name.rpartition(".")[0]
    return FLOOR[name]


def test_imports_only_go_down():
    for name, path in FILES.items():
        for target in imports_at_the_top(path) & FILES.keys():
            assert floor(target) <= floor(name), f"{name} must not import {target}"


def test_a_package_imports_nothing_that_is_plugged_into_it():
    for package, rooms in PLUGGED_IN.items():
        book = {name for name in FILES if f"{name}.".startswith(f"{package}.")
                and not name.startswith(rooms)}
        for name in book:
            found = {target for target in imports_at_the_top(FILES[name])
                     if target.startswith((*rooms, "numba", "llvmlite"))}
            assert not found, f"{name} imports {found}"


def test_no_file_imports_in_a_circle():
    graph = {name: imports_at_the_top(path) & FILES.keys() for name, path in FILES.items()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_every_room_says_in_its_first_line_what_it_is_for():
    for path in FILES.values():
        if path.name == "__init__.py":
            first = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            assert first.partition("\n")[0].endswith((".", ":")), path


def test_no_folder_has_more_files_than_one_can_take_in():
    for folder in {path.parent for path in FILES.values()}:
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MOST_FILES, f"{folder} has {len(files)} files; part it"


def test_nothing_but_numpy_numba_and_tqdm_is_needed():
    allowed = ({"numpy", "numba", "llvmlite", "tqdm", "minigrad", "model", "data"}
               | sys.stdlib_module_names)
    for name, path in FILES.items():
        for target in imports_at_the_top(path):
            assert target.split(".")[0] in allowed, f"{name} imports {target}"
