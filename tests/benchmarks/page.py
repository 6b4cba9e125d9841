"""The live page of a model in Chromium: milliseconds of a key press, and memory over many."""
import argparse
import pathlib
import statistics
import tempfile

from model.checkpoint import BEST, load_checkpoint
from model.look.page import gather, html
from tests.benchmarks.report import Report
from tests.benchmarks.timing import plan, say
from tests.browser import browser, of, opened
from tests.kit import written

CHARACTERS, PRESSES, ROUNDS = 200, 1000, 20
# For each text and place of the caret: from the key to the letters and the prediction, laid out,
# and to the colours of all letters.
PRESS = """(async () => {
    const input = byId("input"), times = [];
    for (const [text, caret] of arguments[0]) {
      const began = performance.now();
      const past = () => document.body.offsetHeight && performance.now() - began;
      Object.assign(input, { value: text, selectionStart: caret, selectionEnd: caret });
      input.dispatchEvent(new Event("input"));
      times.push([past()]);
      while (spans.coloured < seen.length) await new Promise((go) => setTimeout(go));
      times.at(-1).push(past());
    }
    return times;
  })().then(arguments[1])"""
HEAP = "gc(), performance.memory.usedJSHeapSize / 2 ** 20"


def measure_page(options: argparse.Namespace, report: Report) -> None:
    """Measure the live page of the model of --out_dir."""
    checkpoint = load_checkpoint(options.out_dir / BEST)
    characters = [c for c in checkpoint.tokenizer.vocabulary if c.isalpha()] or ["a"]
    text = "".join(characters[7 * i % len(characters)] for i in range(CHARACTERS))
    rounds, presses = plan(options, ROUNDS, PRESSES)
    say(f"page: {rounds} rounds of two keys, then {presses} keys")
    keys = [(text[:-1], CHARACTERS - 1), (text, CHARACTERS), (text[0] + text[:-1], 1)]
    with tempfile.TemporaryDirectory() as folder, browser("--js-flags=--expose-gc",
                                                          "--enable-precise-memory-info") as driver:
        path = written(pathlib.Path(folder) / "live.html", html(*gather(
            checkpoint, text, "", options.out_dir)))
        page = opened(driver, path)
        page.set_script_timeout(600)
        times = page.execute_async_script(PRESS, keys * (1 + rounds))
        before = of(page, HEAP)
        page.execute_async_script(PRESS, [(text[:-1 - n % 2], 100) for n in range(presses)])
        after, size = of(page, HEAP), path.stat().st_size
    kinds = {"a key at its end: one is read": times[4::3], "at its beginning: all are": times[5::3]}
    report.keep("page", {**kinds, "heap": [before, after]})
    report.table(
        f"The live page, {size / 1e6:.1f} MB, in Chromium: from a key to the picture, of a text of "
        f"{CHARACTERS} characters", {"median ms to": "{}", "the prediction": "{:.1f}",
                                     "all colours": "{:.1f}", "most": "{:.1f}"},
        [[kind, *map(statistics.median, zip(*found)), max(map(max, found))]
         for kind, found in kinds.items()],
        [f"{presses:,} keys more: the heap had {before:.0f} MiB before, and {after:.0f} after."])
