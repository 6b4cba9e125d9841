"""Functions that only kernels call: each is linked into its kernels before LLVM optimises them.

Numba would optimise such a function, with all that it calls, and translate it to machine code,
before it does the same to the function's caller.  An inner loop that a kernel reaches through eight
functions would be compiled eight times.  Here only whole kernels are optimised and translated.
"""
import types

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _Library(JITCodeLibrary):
    """A function's code in LLVM's language, as Numba writes it."""

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalized = True


# In place of machine code: Python never calls these functions.
_NOTHING = types.SimpleNamespace(
    get_pointer_to_function=lambda name: 0,
    codegen=types.SimpleNamespace(set_env=lambda name, environment: None))


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "minigrad_lowering"

    def run_pass(self, state):
        context = state.targetctx
        state.library = _Library(context.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        entry = context.get_executable(_NOTHING, state.cr.fndesc, state.cr.env)
        context.insert_user_function(entry, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=entry)
        return True


class Linked(CompilerBase):
    """The passes of a linked function, for `numba.njit(pipeline_class=Linked)`."""

    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_Lowering if step is NativeLowering else step, name)
                         for step, name in passes.passes]
        passes.finalize()
        return [passes]
