"""The innermost loops of products, as LLVM compiles them for processors that need not be here.

A loop that keeps its sums in registers on one processor may keep them on the stack on another, and
run at half its speed.  LLVM can compile for every processor, and llvm-mca (in LLVM's own tools)
predicts the cycles of a loop.
"""
import argparse
import ctypes
import math
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from minigrad.kernels.compiler import processor
from minigrad.kernels.compiler.tiles import HERE, SIZES, Size, tiles_of
from tests.benchmarks.report import Report

X86, APPLE, ARM = "x86_64-unknown-linux-gnu", "arm64-apple-macosx", "aarch64-unknown-linux-gnu"
PROCESSORS = {"haswell": (X86, (32, 16)), "znver3": (X86, (32, 16)),
              "skylake-avx512": (X86, (64, 32)), "sapphirerapids": (X86, (64, 32)),
              "znver4": (X86, (64, 32)), "znver5": (X86, (64, 32)),
              "apple-m1": (APPLE, (16, 32)), "neoverse-v1": (ARM, (16, 32))}
FLOATS = {np.float32: ir.FloatType(), np.float64: ir.DoubleType()}
PASSES = 200        # of a loop, by llvm-mca
ROWS, DEPTH = 96, 384       # of A, for what is measured; a multiple of every MR
MOMENT, ROUNDS = 0.01, 30   # seconds of a turn

_MULTIPLY_ADD = re.compile(r"\tv?fn?m(?:add|la)")
_VECTOR = re.compile(r"\b(?:[xyz]mm|[qvz])\d")
_STACK = re.compile(r"\(%rsp|\[sp")     # rbp is a general register in these loops
_LABEL = re.compile(r"\.?L\w+(?=:)")
_JUMP = re.compile(r"\t(?:j\w+|b|b\.\w+|[ct]bn?z)\s.*?(\.?LBB\w+)$")


@dataclass
class Loop:
    """An innermost loop with multiply-adds: the name of its tile, its label and its lines."""
    tile: str
    label: str
    code: list[str]

    @property
    def multiply_adds(self) -> list[str]:
        """The lines that multiply and add vectors."""
        return [line for line in self.code if _MULTIPLY_ADD.match(line)]

    @property
    def spills(self) -> list[str]:
        """The lines that load a vector from the stack, or store one there."""
        return [line for line in self.code if _STACK.search(line) and _VECTOR.search(line)]


def loops(name: str, dtype: type = np.float32, module: ir.Module | None = None) -> list[Loop]:
    """Return the loops of all tiles, or of another module, as compiled for a processor."""
    triple, kind = PROCESSORS[name]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    code = llvm.parse_assembly(str(module or tiles_of(FLOATS[dtype], SIZES[kind])))
    code.triple = triple
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=name, features="", opt=3)
    return list(_innermost(machine.emit_assembly(code).splitlines()))


def _innermost(lines: list[str]) -> Iterator[Loop]:
    tile, labels, ends = None, {}, []
    for n, line in enumerate(lines):
        if match := re.match(r'_?"?(minigrad_\w+)"?:', line):
            tile, labels, ends = match[1], {}, []
        elif match := _LABEL.match(line):
            labels[match[0]] = n
        elif (match := _JUMP.match(line)) and match[1] in labels:
            start = labels[match[1]]
            if not any(start <= end for end in ends):       # no loop ends within this one
                code = [x for x in lines[start + 1:n + 1] if re.match(r"\t[a-z]", x)]
                loop = Loop(tile, match[1], code)
                if loop.multiply_adds:
                    yield loop
            ends.append(n)


def predicted_share(loop: Loop, name: str) -> float:
    """Return the cycles of a loop's multiply-adds alone over those of the whole loop, by llvm-mca;
    nan if it is not installed or does not know the processor."""
    cycles = []
    for code in (loop.multiply_adds, loop.code) if shutil.which("llvm-mca") else ():
        run = subprocess.run(
            ["llvm-mca", f"-mtriple={PROCESSORS[name][0]}", f"-mcpu={name}",
             f"-iterations={PASSES}"],
            input="\n".join([f"{loop.label}:", *code, ""]), capture_output=True, text=True)
        found = re.search(r"Total Cycles: +(\d+)", run.stdout)
        if found and "not a recognized processor" not in run.stderr:
            cycles.append(int(found[1]))
    return cycles[0] / cycles[1] if len(cycles) == 2 else math.nan


def on_this_processor(module: ir.Module, name: str, *types: type) -> Callable:
    """Compile a module for this processor; return one of its functions, with these ctypes of the
    result and the arguments."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)),
                                        processor.target_machine())
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(*types)(engine.get_function_address(name))
    function.engine = engine            # it holds the machine code
    return function


def tiles_here(dtype: type = np.float32, size: Size = HERE) -> Callable:
    """Return the tiles of a size, as a Python function of addresses and numbers."""
    i64, address = ctypes.c_int64, ctypes.c_void_p
    return on_this_processor(
        tiles_of(FLOATS[dtype], size), f"minigrad_tile_{FLOATS[dtype]}", None, address, i64, i64,
        i64, address, i64, address, i64, i64, ctypes.c_bool, i64, i64)


def measured_share(by_columns: bool) -> float:
    """Return the rate of whole tiles on this processor over that of multiply-adds alone, one
    thread, with B in the first-level cache."""
    vector_bytes, MR, NV = HERE
    width = vector_bytes // 4 * NV
    a, b, c = (np.ones(shape, np.float32) for shape in ((ROWS, DEPTH), (DEPTH, width),
                                                        (ROWS, width)))
    layout = (1, MR, DEPTH * MR) if by_columns else (DEPTH, 1, MR * DEPTH)
    product = partial(tiles_here(), a.ctypes.data, *layout, b.ctypes.data, 0, c.ctypes.data, width,
                      DEPTH, False, ROWS, NV)
    # A pass has as many multiply-adds as a tile has for each number of a row of A.
    alone = partial(on_this_processor(_multiply_adds_alone(), "alone", ctypes.c_float,
                                      ctypes.c_int64), ROWS // MR * DEPTH)
    return float(np.median([_best(alone) / _best(product) for _ in range(ROUNDS)]))


def _best(call):
    """Return the seconds of the shortest call within a moment."""
    times, end = [], time.perf_counter() + MOMENT
    while time.perf_counter() < end:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def _multiply_adds_alone(size: Size = HERE) -> ir.Module:
    """Return float alone(passes), whose loop has a tile's multiply-adds and nothing else."""
    module, scalar, i64 = ir.Module("alone"), FLOATS[np.float32], ir.IntType(64)
    vector = ir.VectorType(scalar, size.vector_bytes // 4)
    fma = ir.Function(module, ir.FunctionType(vector, [vector] * 3),
                      f"llvm.fmuladd.v{vector.count}f32")
    function = ir.Function(module, ir.FunctionType(scalar, [i64]), "alone")
    entry, loop, end = map(function.append_basic_block, ("entry", "loop", "end"))
    ir.IRBuilder(entry).branch(loop)
    builder = ir.IRBuilder(loop)
    left, *sums = [builder.phi(kind) for kind in (i64, *[vector] * (size.MR * size.NV))]
    # Sums that began alike would be one to LLVM.
    starts = [ir.Constant(vector, [0.5 + i] * vector.count) for i in range(len(sums))]
    factor = ir.Constant(vector, [0.5] * vector.count)
    following = [builder.sub(left, i64(1)), *(builder.call(fma, [x, factor, factor])
                                              for x in sums)]
    for phi, start, value in zip((left, *sums), (function.args[0], *starts), following):
        phi.add_incoming(start, entry)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed(">", following[0], i64(0)), loop, end)
    builder = ir.IRBuilder(end)
    total = following[1]
    for x in following[2:]:
        total = builder.fadd(total, x)
    builder.ret(builder.extract_element(total, ir.IntType(32)(0)))
    return module


def measure_tiles(options: argparse.Namespace, report: Report) -> None:
    """Show the loop of whole tiles for each processor, and its speed on this one."""
    here, rows = processor.name_and_features()[0], []
    for name, (_, kind) in PROCESSORS.items():
        size, found = SIZES[kind], loops(name)
        for by_columns in (0, 1):
            tile = f"minigrad_tile_float_{size.MR}x{size.NV}_{by_columns}"
            of_tile = [loop for loop in found if loop.tile == tile]
            loop = max(of_tile, key=lambda loop: len(loop.multiply_adds))
            rows.append([f"{name}, dense {'columns' if by_columns else 'rows'} of A",
                         f"{size.MR} x {size.NV} of {size.vector_bytes} bytes",
                         len(loop.code) / len(loop.multiply_adds),
                         sum(len(loop.spills) for loop in of_tile), predicted_share(loop, name),
                         measured_share(bool(by_columns)) if name == here else math.nan])
    report.table(
        "Tiles of a product: the innermost loop of whole ones",
        {"": "{}", "MR x NV vectors": "{}", "instructions a multiply-add": "{:.2f}",
         "spills": "{}", "predicted": "{:.0%}", "measured": "{:.0%}"}, rows,
        ["Predicted and measured: the share of the peak, which is the speed of the loop's "
         "multiply-adds alone.  llvm-mca predicts, where it is installed and knows the processor; "
         f"this one is {here}."])
