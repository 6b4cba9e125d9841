"""The numbers, flags and files that documents state are those that the code counts or has."""
import functools
import math
import re
from unittest import mock

import pytest

import data
from data.files import PAUSES
from minigrad.kernels import matmul
from minigrad.kernels.compiler import ahead, lanes
from model import Transformer, generation, settings
from model.checkpoint import BEST, LAST, PREVIOUS
from model.folder import LOG
from model.report import describe_model
from model.reverse.__main__ import JUDGED
from model.run import USUAL_INTERVAL
from model.settings import MODERN, Settings, recipe
from model.walk.stations import STATIONS
from tests.benchmarks.tiles import PROCESSORS
from tests.documents import WORDS, stated
from tests.kit import ROOT
from tests.sizes import MAIN_PART, sizes_here, total

README, MAP, RECIPE, SPEED, SURVIVAL, TRUST = "README.md", *(
    f"docs/{name}.md" for name in ("map", "recipe", "speed", "survival", "trust"))
OPS, TRANSFORMER = "tests/minigrad/test_ops.py", "tests/model/test_transformer.py"


def lines(*names):
    return sum(len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in names)


def rounded(number, digits):
    return f"{round(number, -digits):,}"


@functools.cache
def plays():
    return data.Text(data.read_text("lantern"))


def modern(vocab_size=62, **options):
    """A model of the default recipe, without memory."""
    return Transformer(Settings(**MODERN | options).model_config(vocab_size), dtype=None)


def parameters(module):
    return sum(p.size for p in module.parameters())


def millions(model):
    """The parameters of a model, and those of its table of n-grams."""
    return tuple(f"{parameters(part) / 1e6:.1f}" for part in (model, model.ngram_embedding))


def kernels_of_a_run():
    names = []
    with mock.patch.multiple(ahead, _missing=names.extend, _compile=list), \
            mock.patch.object(ahead.threads, "count", lambda: 2):
        ahead.compile_ahead(muon=True, qk_norm=True, ngrams=True, sample=True)
    return str(len(names))


def dropped(passes, characters):
    """The shares of n-grams and of activations that the recipe drops in so many passes."""
    steps = math.ceil(passes * 0.9 * characters / Settings(**MODERN).characters)
    chosen = recipe("modern", characters, max_iters=steps)
    return chosen["ngram_dropout"], chosen["dropout"]


def exponent(document):
    """The power of ten to which all gradients agree in a test file."""
    return min(stated(document, r"mg\.gradcheck\(f, .*?rtol=1e(-\d+)"))


# A document, words of it with a group for each number, and what counts these.
STATED = [
    (README, r"the whole system in (\d+) lines", lambda: str(lines("docs/one.py"))),
    (README, r"(\w+) files with about [\d,]+ lines of code", lambda: WORDS[len(MAIN_PART)]),
    (MAP, r"The main part of the book is (\w+) files", lambda: WORDS[len(MAIN_PART)]),
    (README, r"attention in (\w+) short stations", lambda: WORDS[len(STATIONS)]),
    ("model/walk/__main__.py", r"attention, in (\w+) stations", lambda: WORDS[len(STATIONS)]),
    (README, r"explains (\w+) words", lambda: WORDS[len(stated(MAP, r" - \*\*\w"))]),
    (README, r"On (\w+) kinds of processor",
     lambda: WORDS[len(stated(SPEED, r"\| \*\*[A-Z]\*\* \|"))]),
    (README, r"has ([\d.]+) of its ([\d.]+) million param", lambda: millions(modern())[::-1]),
    (RECIPE, r"with ([\d.]+) million parameters, of which ([\d.]+)", lambda: millions(modern())),
    (RECIPE, r"model has ([\d.]+) million parameters, of which ([\d.]+)",
     lambda: millions(modern(65, n_embd=192, n_layer=6, n_head=6, ngram_rows=65536))),
    *[(document, r"model ([\d,]+ parameters: [\w ,]+ of 256)",
       lambda: describe_model(modern().config, parameters(modern())))
      for document in (README, RECIPE)],
    (RECIPE, r"lantern: ([\d,]+) characters, (\d+) different ones; the last ([\d,]+)",
     lambda: (f"{len(plays()):,}", str(plays().different), f"{len(plays().val):,}")),
    (RECIPE, r"steps of ([\d,]+) characters by", lambda: f"{Settings(**MODERN).characters:,}"),
    (RECIPE, r"computed on (\d+) batches", lambda: str(Settings.eval_iters)),
    (RECIPE, r"them in ([\d.]+) passes, and (\w+) tenths in (\d+) passes", lambda: (
        f"{settings.USUAL_PASSES}", WORDS[round(10 * dropped(20, 20_000)[0])],
        f"{settings.MOST_PASSES:g}")),
    (RECIPE, r"more than ([\d.]+) passes it also drops activations: ([\d.]+) for each halving of "
     r"the text and for each quadrupling of the time, up to ([\d.]+)\. A run on a short text stops "
     r"after (\d+) passes", lambda: (
         f"{settings.USUAL_PASSES}", f"{settings.MORE_ACTIVATIONS}",
         f"{settings.MOST_ACTIVATIONS}", f"{settings.MOST_PASSES:g}")),
    (RECIPE, r"about ([\d,]+) characters gets smaller batches, so that (\d+) passes are at least "
     r"(\d+) steps", lambda: (
         rounded(int(settings.LEAST_STEPS * 2048 / settings.MOST_PASSES / 0.9), 3),
         f"{settings.MOST_PASSES:g}", f"{settings.LEAST_STEPS}")),
    (RECIPE, r"evaluated (\w+) times or more", lambda: WORDS[settings.EVALUATIONS]),
    (RECIPE, r"`(\w+\.npz)` \(the best model\), `(\w+\.npz)` \(to resume from\), `(\w+\.npz)` "
     r"\(the one before `last.npz`\) and `(\w+\.csv)`", lambda: (BEST, LAST, PREVIOUS, LOG)),
    ("model/settings.py", r"folder for (\S+) \(best\), (\S+) \(to resume from\), \" \"(\S+) \(the "
     r"one before it\), ([\w.]+)", lambda: (BEST, LAST, PREVIOUS, LOG)),
    *[(document, r"differences(?:\*\*,)? to 10(-\d)", lambda: exponent(OPS))
      for document in (README, TRUST)],
    *[(document, r"whole model(?: agrees, too)?, to 10(-\d)", lambda: exponent(TRANSFORMER))
      for document in (README, TRUST)],
    ("minigrad/kernels/__init__.py", r"LANES = (\d+)", lambda: str(lanes.LANES)),
    *[(document, r"compil\w+ (\d+) kernels", kernels_of_a_run)
      for document in (RECIPE, MAP, SPEED, "docs/install.md")],
    (SPEED, r"tiles for (\w+) processors", lambda: WORDS[len(PROCESSORS)]),
    (SPEED, r"(\d+) panels of its\s+rows", lambda: str(matmul.BLOCK_PANELS)),
    (SPEED, r"generates (\w+) characters per call", lambda: WORDS[generation.AT_ONCE]),
    (SURVIVAL, r"_interval` seconds \((\d+)\)", lambda: f"{USUAL_INTERVAL:g}"),
    (SURVIVAL, r"tries again for (\w+) seconds", lambda: WORDS[round(sum(PAUSES))]),
    ("docs/attention.md", r"all of ([\d,]+) unseen strings", lambda: f"{JUDGED:,}")]


@pytest.mark.parametrize("document, pattern, count", STATED, ids=[
    f"{document}-{pattern[:24]}" for document, pattern, _ in STATED])
def test_what_a_document_states_is_what_the_code_counts(document, pattern, count):
    assert stated(document, pattern) == [count()]


@pytest.mark.parametrize("document, pattern, count", [
    (README, r"about ([\d,]+) lines of code", lambda: total(sizes_here(), MAIN_PART).lines),
    (MAP, r"about ([\d,]+) lines of code, and", lambda: total(sizes_here(), MAIN_PART).lines),
    (MAP, r"lines of code, and ([\d,]+) with", lambda: lines(*MAIN_PART))])
def test_lines_that_a_document_states_are_right_to_a_tenth(document, pattern, count):
    number, = stated(document, pattern)
    assert int(number.replace(",", "")) == pytest.approx(count(), rel=0.1)


def test_parts_of_one_became_as_many_times_as_long_as_the_map_says():
    rows = stated(MAP, r"\| [\w, ]+, (\d+) \| ((?:`[\w/]+\.py`,? ?)+) \| (\d+) \|")
    assert len(rows) == 10
    for tokens_there, names, times in rows:
        files = re.findall(r"`(.+?)`", names)
        here = total(sizes_here(), files).tokens
        assert int(times) == pytest.approx(here / int(tokens_there), rel=0.2), names


def test_the_first_table_of_the_recipe_has_its_flags():
    (table,) = stated(RECIPE, r"\| part \| flag \| source \|(.*)## A run")
    flags = re.findall(r"--(\w+)(?: ([\w.]+))?", table)
    assert len(flags) == 15
    for name, value in flags:
        kind = type(MODERN[name])
        assert MODERN[name] == (kind(value) if value else True), name


def test_the_table_of_the_rule_has_what_the_recipe_drops():
    lengths = {"`python_20m`": 20_000_000, "the plays": len(plays()), "tiny Shakespeare": 1_115_394,
               "`python_1m`": 1_000_000, "the first 300,000": 300_000, "the first 20,000": 20_000,
               "the first 100,000": 100_000}
    rows = stated(RECIPE, r"\| (the plays|tiny Shakespeare|`python_\w+`|the first [\d,]+)[^|]* \| "
                  r"([\d.]+) \| ([\d.]+), ([\d.]+) \|")
    assert [row[0] for row in rows] == [*lengths]
    for text, passes, *shares in rows:
        assert dropped(float(passes), lengths[text]) == pytest.approx(
            tuple(map(float, shares)), abs=0.011), text


def test_steps_of_the_recipe_read_as_many_characters_as_its_table_says():
    rows = stated(RECIPE, r"\| ([\d.]+) million \| ([\d,]+) \| ")
    assert len(rows) == 5
    for characters, steps in rows:
        read = int(steps.replace(",", "")) * Settings(**MODERN).characters / 1e6
        assert f"{read:.{len(characters.partition('.')[2])}f}" == characters
