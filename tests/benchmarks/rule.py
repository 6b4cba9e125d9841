"""The rule that adapts dropout to the length of a text, beside the dropout of a usual text.

Each text is trained on with and without the rule, in the same number of steps: those that read
--characters of it, 3.2 million by default, or 20 passes over a shorter text.
"""
import pathlib
import statistics

from model.settings import MODERN, MOST_PASSES, complete_settings
from tests.benchmarks.board import COLOURS, GREY, WHOLE, flags_of_run, read_text, train
from tests.benchmarks.report import plot
from tests.benchmarks.timing import say

CHARACTERS = 3.2e6
WITHOUT = ("--dropout", f"{MODERN['dropout']:g}", "--ngram_dropout", f"{MODERN['ngram_dropout']:g}")


def measure_rule(options, report):
    """Show the loss of each text with the rule and without it."""
    most, found = max(options.characters or [CHARACTERS]), []
    for path in options.texts:
        text = read_text(path)
        size = len(text.train)
        budget = min(most, MOST_PASSES * size)
        for seed in range(1, options.seeds + 1):
            run = {"text": pathlib.Path(path).stem, "passes": budget / size, "seed": seed}
            for name, flags in ("with", ()), ("without", WITHOUT):
                say(f"rule: {path}, {name} the rule, seed {seed}")
                flags = flags_of_run(["--recipe", WHOLE, *flags], "characters", budget, seed, text,
                                     options)
                run[name] = train(flags, text)["loss"]
            given = {"max_iters": int(flags[flags.index("--max_iters") + 1])}
            chosen = complete_settings(given, len(text))
            found.append(run | {part: chosen[part] for part in ("ngram_dropout", "dropout")})
            report.keep("rule", found)
    show(found, options, report)


def show(found, options, report):
    """Show a row and a point for each text: means over the seeds."""
    rows = []
    for name in dict.fromkeys(run["text"] for run in found):
        runs = [run for run in found if run["text"] == name]
        ruled, usual = (statistics.mean(run[by] for run in runs) for by in ("with", "without"))
        first = runs[0]
        rows.append([name, first["passes"], first["ngram_dropout"], first["dropout"], ruled, usual,
                     ruled - usual])
    rows.sort(key=lambda row: row[1])
    note = plot(lambda axes: draw(axes, rows), 3.6, options.plot)
    report.table("The rule for dropout: validation loss over the whole split, nats a character, "
                 f"mean of {options.seeds} seeds",
                 {"": "{}", "passes": "{:.2f}", "n-grams dropped": "{:.2f}",
                  "activations dropped": "{:.2f}", "with the rule": "{:.3f}",
                  "without it": "{:.3f}", "difference": "{:+.3f}"}, rows, [note])


def headline(rows):
    """Return how much the rule gains and loses at most, in words."""
    differences = {name: difference for name, *_, difference in rows}
    best = min(differences, key=differences.get)
    worst = max(differences.values())
    words = f"The rule lowers the loss by up to {-differences[best]:.3f} ({best})"
    if differences[best] >= 0:
        words = "The rule lowers the loss of no text"
    return f"{words}, and raises it by {'at most ' if worst > 0 else ''}{max(0.0, worst):.3f}"


def draw(axes, rows):
    """Draw both losses of each text in a row of its own; the text that gains most stands above."""
    rows = sorted(rows, key=lambda row: -row[-1])
    names, passes, _, _, ruled, usual, _ = zip(*rows)
    places = range(len(rows))
    axes.hlines(places, ruled, usual, color=GREY, linewidth=1.5, zorder=0)
    # A ring around the dot, so that both are seen where they coincide
    axes.plot(usual, places, "o", ms=11, mew=1.8, mfc="none", color=COLOURS[1], label="without it")
    axes.plot(ruled, places, "o", ms=5, color=COLOURS[0], label="with the rule")
    axes.set_yticks(places, [f"{name}, {n:.2g} passes" for name, n in zip(names, passes)])
    axes.set_xlabel("validation loss, nats per character")
    axes.set_title(headline(rows), loc="left", x=-0.35, fontsize="medium", fontweight="bold")
