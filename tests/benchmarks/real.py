"""The model of a folder, such as a converted one, beside transformers and llama.cpp; and its
start."""
import contextlib
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial

import numba
import numpy as np

import data
from minigrad.packed import PackedTensor
from model.checkpoint import BEST, load_checkpoint
from model.cache import Drawing
from model.kv_cache.decoder import Decoder
from tests.benchmarks.remote import llama_cpp, transformers
from tests.benchmarks.sizes import TEMPERATURE
from tests.benchmarks.timing import plan, say, timed
from tests.kit import ROOT

WARM_STARTS = 3
TURNS = 5, 64           # rounds, tokens of a turn
BEGINNING, PROMPT = 8, 200      # tokens, before those that are drawn, and to be read at once
MEMORY = 2 ** 28        # bytes, more than any cache holds
TEXT = "lantern"
AGREEMENT = 1e-3        # of the logits of both sides, relative to the largest
ABSENT = "{}: absent, because {} is not installed"


def measure_real(options, report):
    """Measure the tokens of the model of --out_dir, and the time to its first token."""
    out_dir = options.out_dir.resolve()
    measure_tokens(options, report, out_dir / BEST)
    rounds, _ = plan(options, WARM_STARTS, 1)
    say(f"real: {1 + rounds} starts")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as kernels:
        cold, *warm = [seconds_to_a_token(out_dir, kernels) for _ in range(1 + rounds)]
    report.table("From the start of model.sample to its first token",
                 {"": "{}", "seconds": "{:.2f}"},
                 [["kernels compiled", cold], ["kernels on disk, median", statistics.median(warm)]],
                 [f"All starts with kernels on disk: {', '.join(f'{s:.2f}' for s in warm)} s."])


def seconds_to_a_token(out_dir, kernels):
    """Return the seconds until model.sample writes a token; its kernels are kept in a folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": kernels, "PYTHONUNBUFFERED": "1"}
    words = "-m model.sample --max_new_tokens 1 --out_dir".split()
    line, started = "", time.perf_counter()
    with subprocess.Popen([sys.executable, *words, out_dir], cwd=ROOT, env=environment, text=True,
                          encoding="utf-8", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            if not line.startswith("compiling"):
                process.kill()
                return time.perf_counter() - started
    sys.exit(f"model.sample ended too early: {line.strip()}")


def measure_tokens(options, report, path):
    """Compare tokens that are drawn one by one, and a prompt that is read at once."""
    model, tokenizer, *_ = load_checkpoint(path)
    text, _ = tokenizer.without_unknown(data.read_text(TEXT))
    ids = tokenizer.encode(text[:8 * PROMPT])[None, :min(PROMPT, model.config.block_size - 1)]
    start, (rounds, count) = ids[:, :BEGINNING], plan(options, *TURNS)
    count = min(count, model.config.block_size - BEGINNING)
    decoder, u = Decoder(model), np.random.default_rng(0).random((1, count))
    draw = partial(decoder.draw, start, 0, u, Drawing(TEMPERATURE))
    length = len(tokenizer.decode(draw()[0])) / count
    drawing = {"minigrad": draw}
    reading = {"minigrad": partial(decoder.read, ids)}
    notes = []
    makers = {"transformers": ("transformers", partial(transformers, path)),
              "llama.cpp": ("xllamacpp", partial(llama_cpp, path, options.threads))}
    with contextlib.ExitStack() as others:
        for name, (library, make) in makers.items():
            if not importlib.util.find_spec(library):
                notes.append(ABSENT.format(name, library))
                continue
            say(f"real: {name}, its start")
            try:
                other = others.enter_context(make())
                if name == "transformers":      # llama.cpp rounds activations to 8 bits
                    notes.append(agreement(decoder.read(ids), other.call("logits", ids)))
                drawing[name] = partial(other.time, "generate", start, count)
                reading[name] = partial(other.time, "logits", ids)
            except (RuntimeError, ValueError) as error:
                notes.append(f"{name}: absent, because {error}")
        memory, = timed({"memory": partial(summed, np.ones(MEMORY // 4, np.float32))}, 8)
        size, bandwidth = bytes_of_a_step(model), MEMORY / min(memory.turn())
        notes.append(f"Each token needs {size / 1e6:,.0f} MB of weights; the memory gives "
                     f"{bandwidth / 1e9:.1f} GB/s, the best of reading {MEMORY / 1e6:,.0f} MB.")
        report.turns(f"Tokens drawn, one text, {count} after {BEGINNING}, which are read too",
                     timed(drawing), rounds,
                     {"tokens/s": ("{:.1f}", count), "characters/s": ("{:.0f}", length * count),
                      "GB/s": ("{:.1f}", size * count / 1e9),
                      "of memory": ("{:.0%}", size * count / bandwidth)}, notes, calls=count)
        prompt = ids.shape[1]
        report.turns(f"A prompt read, {prompt} tokens", timed(reading), rounds,
                     {"tokens/s": ("{:,.0f}", prompt)}, form="{:,.0f}")


def bytes_of_a_step(model):
    """Return the bytes of the weights that each token needs as a whole."""
    looked_up = {"position_embedding.weight", "ngram_embedding.weight"}
    if not model.config.tied:
        looked_up.add("token_embedding.weight")
    return sum(p.packed.nbytes if isinstance(p, PackedTensor) else p.data.nbytes
               for name, p in model.named_parameters() if name not in looked_up)


@numba.njit(parallel=True, fastmath=True)
def summed(a):
    """Read an array as fast as the memory allows."""
    total = np.float32(0)
    for i in numba.prange(a.size):
        total += a[i]
    return total


def agreement(ours, theirs):
    """Check that both sides compute the same logits; return a note."""
    apart = np.abs(ours - theirs).max() / np.abs(theirs).max()
    if not apart < AGREEMENT:
        sys.exit(f"minigrad and transformers do not compute the same: logits are {apart:.0e} of "
                 "the largest apart")
    return f"The logits after the prompt agree with those of transformers to {apart:.0e}."
