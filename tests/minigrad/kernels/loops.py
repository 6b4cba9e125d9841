"""What a kernel is compiled to: LLVM's optimised code, and the width of the vectors in it."""
import re

from minigrad.kernels.compiler import compiling, processor


def code_of(kernel: compiling.Kernel) -> str:
    """The code of a kernel's version for float32, or of its only one; also if it was kept."""
    kernel.compile("float32")
    version, = [version for dtype, version in kernel.versions.items() if dtype != "float64"]
    compiled, = version.overloads.values()
    return str(compiled.library._get_module_for_linking())


def vector_bits(code: str) -> int:
    """The width of the widest vectors of floats, at most the processor's."""
    widths = [int(n) * (32 if kind == "float" else 64)
              for n, kind in re.findall(r"<(\d+) x (float|double)>", code)]
    return min(max(widths, default=0), 8 * processor.vector_bytes())
