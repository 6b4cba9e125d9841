"""The processor for which kernels are compiled: this one, or the one that NUMBA_CPU_NAME names."""
from functools import cache

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import get_host_cpu_features

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

# Adds sixteen floats, and fuses a product and a sum.
_PROBE = """
define <16 x float> @probe(<16 x float> %x, <16 x float> %y) {
    %sum = fadd <16 x float> %x, %y
    %fused = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %sum, <16 x float> %x,
                                                    <16 x float> %y)
    ret <16 x float> %fused
}
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
"""


def name_and_features() -> tuple[str, str]:
    """Return LLVM's name of the processor, and its features beside those that the name implies."""
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    return config.CPU_NAME or llvm.get_host_cpu_name(), features


def target_machine() -> llvm.TargetMachine:
    """Return LLVM's target machine for the processor."""
    name, features = name_and_features()
    return llvm.Target.from_default_triple().create_target_machine(cpu=name, features=features,
                                                                   opt=3)


@cache
def _probe():
    return target_machine().emit_assembly(llvm.parse_assembly(_PROBE))


def is_arm() -> bool:
    """Whether it is an ARM of 64 bits."""
    return llvm.get_default_triple().startswith(("aarch64", "arm64"))


def vector_bytes() -> int:
    """Return the size of its vectors."""
    return 64 if "zmm" in _probe() else 32 if "ymm" in _probe() else 16


def vector_registers() -> int:
    """Return the number of its registers for vectors."""
    return 32 if is_arm() or vector_bytes() == 64 else 16


def fuses() -> bool:
    """Whether it rounds a product and a sum once, and so gives the same bits as others that do."""
    return any(fused in _probe() for fused in ("vfmadd", "fmla"))


def pause() -> tuple[str, str]:
    """Return a declaration and a call, in LLVM's language, that leave the processor for a moment to
    its other thread, if it has one; "" where none is known."""
    if llvm.get_default_triple().startswith(("x86_64", "i686")):
        return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
    if is_arm():
        return "declare void @llvm.aarch64.isb(i32)", "call void @llvm.aarch64.isb(i32 15)"
    return "", ""


# LLVM takes half a vector for most loops on Intel's processors with AVX-512, which early ones ran
# at a lower clock.  Numba reads this when it first compiles a function.
if vector_bytes() == 64:
    config.CPU_FEATURES = f"{name_and_features()[1]},-prefer-256-bit".strip(",")
