"""The extras of setup.cfg that tests need."""
import importlib.util
import os
import pathlib
import shutil
import sys

# For each extra, the modules and programs that its tests need.
NEEDED = {"board": ["matplotlib"], "browser": ["selenium", "chromium", "chromedriver"],
          "convert": ["safetensors", "tokenizers"], "gguf": ["gguf", "jinja2", "tokenizers"],
          "interop": ["peft", "safetensors", "tokenizers", "torch", "transformers"],
          "judge": ["xllamacpp"], "mpi": ["mpi4py", "mpiexec"],
          "notebook": ["nbclient", "ipykernel", "matplotlib"]}


def program(name):
    """Return the path of a program: in Python's own environment, else on PATH."""
    return shutil.which(name, path=f"{pathlib.Path(sys.executable).parent}{os.pathsep}"
                                   f"{os.environ.get('PATH', '')}")


def lacking(*extras):
    """Return a line about the first of these extras that is not complete; "" if all are."""
    for extra in extras:
        absent = [name for name in NEEDED[extra]
                  if not (importlib.util.find_spec(name) or program(name))]
        if absent:
            return f"needs '.[{extra}]': there is no {' and no '.join(absent)}"
    return ""
