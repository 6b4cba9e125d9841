"""The innermost loops of products, as LLVM compiles them for processors that need not be here.

A loop that keeps its sums in registers on one processor may keep them on the stack on another, and
run at half its speed.  LLVM can compile for every processor, and llvm-mca (in LLVM's own tools)
predicts the cycles of a loop.
"""
import ctypes
import math
import re
import shutil
import subprocess
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from minigrad.kernels.compiler import processor
from minigrad.kernels.compiler.tiles import HERE, SIZES, tiles_of

X86, APPLE, ARM = "x86_64-unknown-linux-gnu", "arm64-apple-macosx", "aarch64-unknown-linux-gnu"
PROCESSORS = {"haswell": (X86, (32, 16)), "znver3": (X86, (32, 16)),
              "skylake-avx512": (X86, (64, 32)), "sapphirerapids": (X86, (64, 32)),
              "znver4": (X86, (64, 32)), "znver5": (X86, (64, 32)),
              "apple-m1": (APPLE, (16, 32)), "neoverse-v1": (ARM, (16, 32))}
FLOATS = {np.float32: ir.FloatType(), np.float64: ir.DoubleType()}
PASSES = 200        # of a loop, by llvm-mca

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
    def multiply_adds(self):
        """The lines that multiply and add vectors."""
        return [line for line in self.code if _MULTIPLY_ADD.match(line)]

    @property
    def spills(self):
        """The lines that load a vector from the stack, or store one there."""
        return [line for line in self.code if _STACK.search(line) and _VECTOR.search(line)]


def loops(name, dtype=np.float32, module=None):
    """Return the loops of all tiles, or of another module, as compiled for a processor."""
    triple, kind = PROCESSORS[name]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    code = llvm.parse_assembly(str(module or tiles_of(FLOATS[dtype], SIZES[kind])))
    code.triple = triple
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=name, features="", opt=3)
    return list(_innermost(machine.emit_assembly(code).splitlines()))


def _innermost(lines):
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


def predicted_share(loop, name):
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


def tiles_here(dtype=np.float32, size=HERE):
    """Compile tiles for this processor; return a function of addresses and numbers."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(tiles_of(FLOATS[dtype], size))),
                                        processor.target_machine())
    engine.finalize_object()
    i64, address = ctypes.c_int64, ctypes.c_void_p
    function = ctypes.CFUNCTYPE(None, address, i64, i64, i64, address, i64, address, i64, i64,
                                ctypes.c_bool, i64, i64)(
        engine.get_function_address(f"minigrad_tile_{FLOATS[dtype]}"))
    function.engine = engine            # it holds the machine code
    return function


def measure_tiles(options, report):
    """Show the loop of whole tiles for each processor."""
    rows = []
    for name, (_, kind) in PROCESSORS.items():
        size, found = SIZES[kind], loops(name)
        for by_columns in (0, 1):
            tile = f"minigrad_tile_float_{size.MR}x{size.NV}_{by_columns}"
            of_tile = [loop for loop in found if loop.tile == tile]
            loop = max(of_tile, key=lambda loop: len(loop.multiply_adds))
            rows.append([f"{name}, dense {'columns' if by_columns else 'rows'} of A",
                         f"{size.MR} x {size.NV} of {size.vector_bytes} bytes",
                         len(loop.code) / len(loop.multiply_adds),
                         sum(len(loop.spills) for loop in of_tile), predicted_share(loop, name)])
    report.table(
        "Tiles of a product: the innermost loop of whole ones",
        {"": "{}", "MR x NV vectors": "{}", "instructions a multiply-add": "{:.2f}",
         "spills": "{}", "predicted": "{:.0%}"}, rows,
        ["Predicted: the share of the peak, which is the speed of the loop's multiply-adds alone, "
         "by llvm-mca, where it is installed and knows the processor."])
