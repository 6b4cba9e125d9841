"""What the loops of compiled kernels do, read in LLVM's optimised code: count references, and
compute on vectors of some width.

    python -m tests.minigrad.kernels.loops      # a line for each kernel

A block is in a loop if the program can come back to it, or if its function is called from a loop.
"""
import re

import minigrad.kernels     # noqa: F401, registers them
from minigrad.kernels.compiler import compiling, processor

_NAME = r'"[^"]+"|[\w.$-]+'


def loops(code: str) -> list[tuple[str, str]]:
    """Return each function of a module with a line of one of its loops, for all such lines."""
    blocks = {m[1]: _blocks(m[2]) for m in re.finditer(
        rf"^define .*?@({_NAME})\(.*?{{\n(.*?)^}}", code, re.MULTILINE | re.DOTALL)}
    found = []
    for name, block in blocks.items():
        after = {label: re.findall(rf"label %({_NAME})", "\n".join(lines))
                 for label, lines in block.items()}
        found += [(name, line) for label in block if label in _reached(after, after[label])
                  for line in block[label]]
    calls = {name: _called("\n".join(sum(block.values(), [])), blocks)
             for name, block in blocks.items()}
    called = _reached(calls, _called("\n".join(line for _, line in found), blocks))
    return found + [(name, line) for name in called for lines in blocks[name].values()
                    for line in lines]


def _blocks(body):
    """Return label -> lines of a function; the first block may have no label."""
    blocks, lines = {}, []
    for line in body.splitlines():
        if label := re.match(rf"({_NAME}):", line):
            blocks[label[1]] = lines = []
        elif not blocks:
            blocks["first"] = lines = [line]
        else:
            lines.append(line)
    return blocks


def _called(text, functions):
    return [name for name in re.findall(rf"call .*?@({_NAME})\(", text)
            if name in functions and not name.startswith("NRT_")]


def _reached(after, starts):
    """Return all that can be reached from the starts, themselves included."""
    reached, waiting = set(), list(starts)
    while waiting:
        if (one := waiting.pop()) not in reached:
            reached.add(one)
            waiting += after[one]
    return reached


def counted(code: str) -> list[tuple[str, str]]:
    """Return the function and the line of each count of references in a loop."""
    return [(name, line) for name, line in loops(code) if re.search(r"@NRT_(in|de)cref\(", line)]


def vector_bits(code: str) -> int:
    """Return the width of the widest vectors of floats in the loops, at most the processor's."""
    widths = [int(n) * (32 if kind == "float" else 64) for _, line in loops(code)
              for n, kind in re.findall(r"<(\d+) x (float|double)>", line)]
    return min(max(widths, default=0), 8 * processor.vector_bytes())


if __name__ == "__main__":
    for name, kernel in compiling.KERNELS.items():
        code = kernel.code("float32")
        print(name, vector_bits(code), *counted(code))
