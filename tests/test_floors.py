"""The house: a file imports only from the floors below it."""
import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
FLOORS = [
    "minigrad.control_groups minigrad.environment",
    "minigrad.kernels.simd minigrad.kernels.processor minigrad.kernels.memory "
    "minigrad.kernels.threads data.errors",
    "minigrad.kernels.lanes minigrad.kernels.tiles",
    "minigrad.kernels.panels",
    "minigrad.kernels.plain",
    "minigrad.kernels.compiling minigrad.kernels.vector_math data.batches data.download "
    "data.ngrams",
    "minigrad.kernels.sums minigrad.kernels.gelu minigrad.kernels.squared_relu "
    "minigrad.kernels.dropout minigrad.kernels.ngrams "
    "minigrad.kernels.ahead minigrad.kernels.drawing data.texts data.repetition",
    "minigrad.kernels.softmax minigrad.kernels.norm minigrad.kernels.embedding "
    "minigrad.kernels.matmul minigrad.kernels.rotary minigrad.kernels.update",
    "minigrad.kernels.attention minigrad.kernels.cross_entropy minigrad.kernels.orthogonal",
    "minigrad.kernels.decoding",
    "minigrad.kernels minigrad.core data",
    "minigrad.source minigrad.svg",
    "minigrad.ops.elementwise minigrad.ops.shape minigrad.ops.network",
    "minigrad.ops.attention",
    "minigrad.ops",
    "minigrad.gradcheck minigrad.graph minigrad.optim minigrad.profiling",
    "minigrad.muon",
    "minigrad",
    "model.startup",
    "model.archive model.causality model.files model.flags model.memory_limit model.module "
    "model.seeds model.tokenizer",
    "model.layers model.positions",
    "model.attention",
    "model.attention_forms model.encoder_decoder model.transformer",
    "model.checkpoint model.decoding model.graphs model.sizes model.training",
    "model.explain model.generation model.heads model.nan model.reading model.scoring "
    "model.settings",
    "model",
    "model.interactive model.page model.recipes model.run",
    "model.count model.look model.reverse model.sample",
    "train",
]
LEVEL = {name: level for level, floor in enumerate(FLOORS) for name in floor.split()}


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_at_the_top(path):
    """Every module that a file imports when it is loaded."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {node for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)
              for node in ast.walk(f)}
    for node in ast.walk(tree):
        if node in inside:
            continue
        if isinstance(node, ast.ImportFrom):
            yield from ({f"{node.module}.{a.name}" for a in node.names} & LEVEL.keys()
                        or {node.module})
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names)


def files():
    return [path for folder in ("minigrad", "model", "data")
            for path in (ROOT / folder).rglob("*.py")] + [ROOT / "train.py"]


def test_every_file_has_a_floor():
    assert {name_of(path) for path in files()} == LEVEL.keys()


def test_imports_only_go_down():
    for path in files():
        name = name_of(path)
        for target in imports_at_the_top(path):
            assert LEVEL.get(target, -1) < LEVEL[name], f"{name} must not import {target}"


def test_nothing_but_numpy_numba_and_tqdm_is_needed():
    import sys
    allowed = ({"numpy", "numba", "llvmlite", "tqdm", "minigrad", "model", "data"}
               | sys.stdlib_module_names)
    for path in files():
        for target in imports_at_the_top(path):
            assert target.split(".")[0] in allowed, f"{name_of(path)} imports {target}"
