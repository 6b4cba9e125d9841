"""Print a graph that the engine records, in the order in which backward visits it, or draw it:

    python -m model.explain                             of a neuron
    python -m model.explain --of block -o graph.svg     drawn, of one block of the transformer

`python train.py --explain` explains a whole training step.
"""
import dataclasses
import inspect
import sys

from data.files import replacing
from minigrad import compiled
from model.answers import announced_if_slow, answering, tell
from model.command import Parser
from model.explain.graphs import GRAPHS, recorded
from model.interrupts import Interrupts
from model.options import flag


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command."""
    of: str = flag("expression", f"which graph: {', '.join(GRAPHS)}, with the shapes of the run "
                                 "in out_dir if there is one")
    output: str = flag("", "the .svg file in which it is drawn (default: it is printed)",
                       short="-o")
    out_dir: str = flag("out", "folder of the run")


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    s = Settings(**Parser("python -m model.explain", __doc__, Settings).parse(argv))
    compiled.announce("compiling", sys.stderr)
    with answering("model.explain"), announced_if_slow(f"recording the graph of {s.of}"):
        show(s.of, s.output, s.out_dir)


def show(of: str, output: str, out_dir: str) -> None:
    """Print the graph of that name, or draw it in a file."""
    if of not in GRAPHS:
        raise ValueError(f"there is a graph of {', '.join(GRAPHS)}, not of {of!r}")
    if output and not output.lower().endswith(".svg"):
        raise ValueError(f"a graph is drawn as SVG: give a file that ends in .svg, not {output!r}")
    title, _, more = (inspect.getdoc(GRAPHS[of]) or of).partition("\n\n")
    if not output:
        print(title, more, recorded(of, out_dir).text(), sep="\n\n")
        return
    with Interrupts(at_once=True), replacing(output) as file:
        file.write(recorded(of, out_dir).svg(title).encode("utf-8"))
    tell(f"drawn in {output}; a browser shows it")


if __name__ == "__main__":
    main()
