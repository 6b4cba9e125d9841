"""The board and the scaling of ranks as plots, by matplotlib, where that is installed."""
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

COLOURS = ("#0b62a4", "#c8500a", "#2a7f3f", "#7b3fa0")
GREY = "#666666"
ABOVE = 1.3         # times the highest loss, up to which a counted n-gram is shown
LOOK = {"svg.fonttype": "none", "svg.hashsalt": "board", "font.size": 10,
        "axes.spines.top": False, "axes.spines.right": False}
ABSENT = ("No plot, because matplotlib is not installed: python -m pip install -e '.[board]', and "
          "again with --from and the JSON file")


def draw(found: dict, groups: dict[tuple[float, str], list[dict]], path: pathlib.Path) -> str:
    """Loss over minutes, a line for each entry; groups are the runs by (minutes, name).  Returns
    what came of it."""
    def board(axes):
        lines(axes, groups)
        counted(axes, found["counted"], max(run["loss"] for runs in groups.values()
                                            for run in runs))
        budgets = sorted({minutes for minutes, _ in groups})
        axes.set_xscale("log")
        axes.set_xlim(budgets[0] / 1.25, budgets[-1] * 1.8)         # room for the n-grams' names
        axes.set_xticks(budgets, [f"{minutes:g}" for minutes in budgets])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(f"minutes of training steps, --threads {found['threads']} (log scale)")
        axes.set_ylabel("validation loss, whole split, nats per character")
        seeds = max(map(len, groups.values()))
        axes.set_title(f"{pathlib.Path(found['data']).name}: mean, and bars from the least to the "
                       f"most of {seeds} {'seed' if seeds == 1 else 'seeds'}", loc="left",
                       fontsize=10)
    return drawn(board, 4.6, path)


def drawn(draw_on: Callable[[Any], None], height: float, path: pathlib.Path) -> str:
    """Draw on the axes of a figure of this height, in inches, and write it; returns what came of
    it."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return ABSENT
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(7.2, height), layout="constrained", facecolor="white")
        draw_on(figure.add_subplot())
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
        return saved(figure, path)


def saved(figure, path: pathlib.Path) -> str:
    """Write a figure; returns what came of it."""
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        return f"No plot: cannot write {path}: {error}; give another file with --plot"
    return f"Plotted in {path}."


def draw_scaling(counts: list[int], predicted: dict[str, list[list[float]]], title: str,
                 path: pathlib.Path) -> str:
    """Efficiency over ranks, for each model that of strong and of weak scaling by a ring; returns
    what came of it."""
    def scaling(axes):
        for (name, rows), colour in zip(predicted.items(), COLOURS):
            strong, _, weak, _ = zip(*rows)
            axes.plot(counts, weak, colour, marker="o", label=f"{name}, weak")
            axes.plot(counts, strong, colour, marker="o", linestyle=":", markerfacecolor="white",
                      label=f"{name}, strong")
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [f"{n:,}" for n in counts])
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("ranks (log scale)")
        axes.set_ylabel("efficiency")
        axes.set_title(title, loc="left", fontsize=10)
    return drawn(scaling, 3.6, path)


def lines(axes, groups: dict[tuple[float, str], list[dict]]) -> None:
    """Means, with bars from the least to the most; a recipe has its colour, PyTorch is dotted."""
    names = list(dict.fromkeys(name for _, name in groups))
    recipes = list(dict.fromkeys(name.split(",")[0] for name in names))
    for name in names:
        minutes = [m for m, other in groups if other == name]
        losses = [[run["loss"] for run in groups[m, name]] for m in minutes]
        means = [statistics.mean(of_one) for of_one in losses]
        bars = [[mean - min(of_one) for mean, of_one in zip(means, losses)],
                [max(of_one) - mean for mean, of_one in zip(means, losses)]]
        colour = COLOURS[recipes.index(name.split(",")[0]) % len(COLOURS)]
        other = "," in name
        axes.errorbar(minutes, means, bars, label=name, color=colour, capsize=3, marker="o",
                      linestyle=":" if other else "-", markerfacecolor="white" if other else colour)


def counted(axes, losses: dict[str, float], highest: float) -> None:
    """A level for each n-gram that is not far above all runs, named at its right end."""
    for name, loss in losses.items():
        if loss < ABOVE * highest:
            axes.axhline(loss, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
            axes.annotate(f"counted {name} {loss:.2f}", (1, loss), (0, 2),
                          ("axes fraction", "data"), "offset points", ha="right", va="bottom",
                          color=GREY, fontsize=8)
