"""The live page of a model in Chromium: milliseconds of a key press, and memory over many."""
import argparse
import pathlib
import statistics
import tempfile

from model.checkpoint import BEST, load_checkpoint
from model.live.page import html
from tests.benchmarks.report import Report
from tests.benchmarks.timing import plan, say
from tests.browser import browser, of, opened
from tests.kit import written

CHARACTERS, PRESSES, ROUNDS = 200, 1000, 20
# From the key to the picture: the text is read and drawn.  Maps follow in idle time.
PRESS = """
    const press = (text, caret) => {
      const input = byId("input"), began = performance.now();
      input.value = text;
      input.setSelectionRange(caret, caret);
      input.dispatchEvent(new Event("input"));
      while (jobs.has("text")) turn(1000);
      return performance.now() - began;
    };
    const [text, rounds] = arguments;"""
TIMES = PRESS + """
    return Array.from({ length: rounds }, () => {
      press(text.slice(0, -1), text.length - 1);
      return [press(text, text.length), press(`${text[0]}${text.slice(0, -1)}`, 1)];
    });"""
MANY = PRESS + "for (let n = 0; n < rounds; n++) press(text.slice(0, -1 - n % 2), 100);"
HEAP = "gc(), performance.memory.usedJSHeapSize / 2 ** 20"


def measure_page(options: argparse.Namespace, report: Report) -> None:
    """Measure the live page of the model of --out_dir."""
    checkpoint = load_checkpoint(options.out_dir / BEST)
    characters = [c for c in checkpoint.tokenizer.vocabulary if c.isalpha()] or ["a"]
    text = "".join(characters[7 * i % len(characters)] for i in range(CHARACTERS))
    rounds, presses = plan(options, ROUNDS, PRESSES)
    say(f"page: {rounds} rounds of two keys, then {presses} keys")
    with tempfile.TemporaryDirectory() as folder, browser("--js-flags=--expose-gc",
                                                          "--enable-precise-memory-info") as driver:
        path = written(pathlib.Path(folder) / "live.html", html(checkpoint, text, options.out_dir))
        page = opened(driver, path)
        end, begin = map(list, zip(*page.execute_script(TIMES, text, 1 + rounds)[1:]))
        before = of(page, HEAP)
        page.execute_script(MANY, text, presses)
        after, size = of(page, HEAP), path.stat().st_size
    report.keep("page", {"end": end, "begin": begin, "heap": [before, after]})
    report.table(
        f"The live page, {size / 1e6:.1f} MB, in Chromium: from a key to the picture, of a text of "
        f"{CHARACTERS} characters",
        {"": "{}", "median ms": "{:.1f}", "most": "{:.1f}", "ms a character": "{:.2f}"},
        [["a key at its end: one is read", statistics.median(end), max(end), float("nan")],
         ["a key at its beginning: all are", statistics.median(begin), max(begin),
          statistics.median(begin) / CHARACTERS]],
        [f"{presses:,} keys more: the heap had {before:.0f} MiB before, and {after:.0f} after."])
