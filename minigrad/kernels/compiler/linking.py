"""Functions that only kernels call: each is linked into its kernels before LLVM optimises them.

Numba would optimise such a function, with all that it calls, and translate it to machine code,
before it does the same to the function's caller.  An inner loop that a kernel reaches through eight
functions would be compiled eight times.  Here only whole kernels are optimised and translated.
"""
import contextlib
import types
from collections.abc import Callable, Iterator

import numba
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


def serial(f: Callable, **options) -> Callable:
    """Compile a function that only kernels call, for any argument types; Python cannot call it.

    It allocates nothing, so that it cannot fail, and counts no references: threads would wait for
    each other to count the views that they make of an array.
    """
    return allocating(f, pipeline_class=_NotCounting, **options)


def allocating(f: Callable, **options) -> Callable:
    """As `serial`, for a function that makes arrays."""
    options = {"pipeline_class": _Linked} | options
    return numba.njit(error_model="numpy", nogil=True, no_cpython_wrapper=True,
                      no_cfunc_wrapper=True, **options)(f)


def inlined(f: Callable) -> Callable:
    """As `serial`, for a function of single rows: LLVM puts it in place of its calls, each of which
    would first copy seven numbers for every array."""
    return serial(f, forceinline=True)


class _Library(JITCodeLibrary):
    """A function's code in LLVM's language, as Numba writes it.  It has no machine code, of which
    Numba would ask the address: Python never calls these functions."""

    codegen = types.SimpleNamespace(set_env=lambda name, environment: None)

    def get_pointer_to_function(self, name):
        return 0

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "minigrad_lowering"

    def run_pass(self, state):
        if isinstance(state.pipeline, _NotCounting):
            state.targetctx = state.targetctx.subtarget(enable_nrt=False)
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().run_pass(state)


class _Linked(CompilerBase):
    """Numba's passes, but for the last, which `_Lowering` replaces."""

    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_Lowering if step is NativeLowering else step, name)
                         for step, name in passes.passes]
        passes.finalize()
        return [passes]


class _NotCounting(_Linked):
    """The same for a function that counts no references."""


@contextlib.contextmanager
def by_pointers() -> Iterator[None]:
    """Have Numba move pointers as pointers.  Before 0.67 it makes integers of them and back, and
    LLVM loses track of what they point into."""
    before = cgutils.pointer_add
    cgutils.pointer_add = _pointer_add
    try:
        yield
    finally:
        cgutils.pointer_add = before


def _pointer_add(builder, ptr, offset, return_type=None):
    if isinstance(offset, int):
        offset = cgutils.intp_t(offset)
    moved = builder.gep(builder.bitcast(ptr, cgutils.voidptr_t), [offset])
    return builder.bitcast(moved, return_type or ptr.type)
