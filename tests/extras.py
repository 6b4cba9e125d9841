"""The extras of setup.cfg, as tests need them."""
import importlib.util
import os
import pathlib
import shutil
import sys

# The modules that tests of each import, and the programs that they start.
NEEDED = {"board": ["matplotlib"], "browser": ["selenium", "chromium", "chromedriver"],
          "convert": ["safetensors", "tokenizers"], "gguf": ["gguf", "tokenizers"],
          "interop": ["safetensors", "tokenizers", "torch", "transformers"],
          "mpi": ["mpi4py", "mpiexec"]}


def program(name: str) -> str | None:
    """Return the path of a program: that of Python's own environment, else that of PATH."""
    return shutil.which(name, path=f"{pathlib.Path(sys.executable).parent}{os.pathsep}"
                                   f"{os.environ.get('PATH', '')}")


def lacking(*extras: str) -> str:
    """Return a line on the first of these extras that is not there as a whole; "" if all are."""
    for extra in extras:
        absent = [name for name in NEEDED[extra]
                  if not (importlib.util.find_spec(name) or program(name))]
        if absent:
            return f"needs '.[{extra}]': there is no {' and no '.join(absent)}"
    return ""
