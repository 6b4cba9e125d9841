"""Feed a target with what reaches new code, in a process of its own:

    python -m tests.reliability.guided TARGET [flags of libFuzzer] [folder of seeds]
"""
import sys

import atheris

with atheris.instrument_imports(include=["data", "model", "train"]):
    from tests.reliability.targets import TARGETS

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]].check)
    atheris.Fuzz()
