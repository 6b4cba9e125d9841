"""A walk through attention, in thirteen stations with numbers:  python -m model.walk

    python -m model.walk 5                      one station
    python -m model.walk --page                 the stations with pictures, as a page
    python -m model.walk --exercise             a folder of exercises to fill in
    python -m model.walk --check FILE           what is right in one, or which mistake is in it
"""
import dataclasses
import itertools
import os
import pathlib
import re
import sys

from data.files import replacing
from minigrad import compiled
from minigrad.words import any_of, number_of
from model.answers import answering, command_line, tell
from model.command import Parser
from model.interrupts import Interrupts
from model.options import flag
from model.walk import practice, process
from model.walk.judge import Fault, Verdict, source_of
from model.walk.page import page
from model.walk.reversing import pictures
from model.walk.screen import closing, screen
from model.walk.stations import STATIONS
from model.walk.stations.forms import crossed


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command."""
    station: int = flag(None, f"show one station, 1 to {len(STATIONS)}; its number alone does "
                              "the same", at_least=1, at_most=len(STATIONS))
    page: str = flag(None, "write the stations with pictures to this HTML file", alone="walk.html")
    exercise: str = flag(None, "write the files to fill in, into this folder; those that are there "
                               "stay as they are", alone="exercises")
    check: str = flag(None, "judge a file that was filled in")


def main(argv: list[str] | None = None) -> None:
    """Run the command; the exit status is 1 if a checked file is not right."""
    words = sys.argv[1:] if argv is None else argv
    parser = Parser("python -m model.walk", __doc__, Settings)
    numbers = [*itertools.takewhile(is_number, words)]
    if len(numbers) > 1:
        parser.refuse([f"give the number of one station, not {any_of(numbers)}; all are shown "
                       "without a number"])
    if numbers:
        words = ["--station", *words]
    given = parser.parse(words)
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        parser.refuse([f"{names} do different things; give one of them"])
    name, value = next(iter(given.items()), ("station", None))
    with answering("model.walk"):
        run = {"station": walk, "page": write_page, "exercise": write_exercises, "check": check}
        right = run[name](value)
    sys.exit(right is False)


def is_number(word: str) -> bool:
    """Return whether a word is meant as the number of a station: it is no flag, and no file."""
    return not re.match("-+[^0-9]", word) and not re.search(r"\.[a-z]\w*$", word)


def walk(only: int | None) -> None:
    """Show one station, or all of them; at a terminal, wait after each."""
    compiled.announce("compiling", sys.stderr)
    waits = only is None and sys.stdin.isatty() and sys.stdout.isatty()
    for number in range(1, len(STATIONS) + 1) if only is None else [only]:
        print(screen(STATIONS, number))
        if waits and number < len(STATIONS):
            print("Enter shows the next station, q and Enter stops: ", end="", flush=True)
            typed = sys.stdin.readline()
            if not typed or typed.strip().lower() == "q":
                return
    print(closing(STATIONS, number))


def write_page(path: str) -> None:
    """Write the page, and say where it is."""
    if not path.lower().endswith((".html", ".htm")):
        raise ValueError(f"--page is a file whose name ends in .html; this is {path!r}")
    compiled.announce("compiling", sys.stderr)
    with Interrupts(at_once=True), replacing(path) as file:
        written = page(STATIONS, {crossed: pictures()}).encode()
        file.write(written)
    tell(f"{path}: {len(written):,} bytes; open it in a browser")


def write_exercises(folder: str) -> None:
    """Write the files of the exercises, and say what to do with them."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise ValueError(f"--exercise is a folder, and {folder!r} is none; give another name")
    with Interrupts(at_once=True):
        new = practice.write(folder)
    kept = len(practice.exercises()) - len(new)
    first = pathlib.Path(folder, f"{practice.exercises()[0].name}.py")
    said = f"{folder}: {number_of(len(new), 'new file')}"
    if kept:
        said += f"; {kept} already there, not changed"
    tell(f"{said}.  Read the text in {first.name}, fill it in, then:",
         f"    {command_line('model.walk', '--check', first)}")


def check(path: str) -> bool:
    """Judge a student's file; return whether it is right."""
    try:
        source_of(pathlib.Path(path).absolute())        # before anything is announced
        verdict = process.check(path)
    except Fault as fault:
        verdict = Verdict(False, [*fault.args])
    print(verdict.text())
    return verdict.right


if __name__ == "__main__":
    main()
