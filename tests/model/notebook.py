"""Run each program as a notebook does, in one process: python -m tests.model.notebook TEXT.

Python was started otherwise there, and output is no file.  What each program has said is printed as
JSON, by its words.  In these, OUT stands for the folder of a model, which is trained first on TEXT,
and TMP for one without.
"""
import io
import json
import os
import runpy
import sys
import tempfile
import traceback

TRAIN = ("train.py --data TEXT --out_dir OUT --n_layer 1 --n_embd 8 --block_size 8 --max_iters 4 "
         "--eval_interval 4 --eval_iters 1 --threads 1")
SAID = {        # what each program says, among other words
    "train.py --init_from resume --out_dir OUT": "python train.py --init_from resume --out_dir",
    "train.py --init_from resume --out_dir none": "train one with python train.py, name",
    "model.sample --out_dir OUT --max_new_tokens 9": "characters a second",
    "model.convert OUT none.gguf": "model.convert: ",
    "model.count --out_dir OUT": "parameters",
    "model.walk --exercise TMP": "    python -m model.walk --check ",
    "model.reverse --heads 3": "--heads",
    "model.explain": "backward",
}


class Output(io.TextIOBase):
    """Keeps what is written."""

    def __init__(self):
        self.said = ""

    def write(self, text):
        self.said += text
        return len(text)


def run(words, places):
    """Return what a program with these words says, and what ends it."""
    output = Output()
    sys.argv[:] = [places.get(word, word) for word in words.split()]
    program = sys.argv[0]
    sys.stdout = sys.stderr = output
    try:
        if program == "train.py":
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            output.write(end.code)
    except BaseException:
        output.write(traceback.format_exc())
    finally:
        sys.stdout = sys.__stdout__
        sys.stderr = sys.__stderr__
    return output.said


if __name__ == "__main__":
    sys.orig_argv[:] = ["python"]
    with tempfile.TemporaryDirectory() as folder:
        places = {"TEXT": sys.argv[1], "OUT": os.path.join(folder, "out"), "TMP": folder}
        run(TRAIN, places)
        print(json.dumps({words: run(words, places) for words in SAID}))
