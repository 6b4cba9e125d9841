"""Exercises in attention, which check themselves:  python -m model.walk --exercise

    --check exercises/e1_softmax.py     what is right in a file, or which mistake is in it
"""
import dataclasses
import pathlib
import sys

from model.console.flags import Parser, answering, prepare_output
from model.console.options import flag
from model.console.words import number_of
from model.walk import judge, practice


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the command."""
    exercise: str = flag(None, "write the files to fill in, into this folder; those that are there "
                               "stay as they are", alone="exercises")
    check: str = flag(None, "judge a file that was filled in")


def main(argv: list[str] | None = None) -> None:
    """Run the command; the exit status is 0 if a checked file is right, and 1 if it is not."""
    prepare_output()
    parser = Parser("python -m model.walk", __doc__, Settings)
    s = Settings(**parser.given(argv))
    if (s.exercise is None) == (s.check is None):
        parser.error("give --exercise for the files, or --check and a file to have it judged")
    with answering("model.walk"):
        if s.check is None:
            exercise(pathlib.Path(s.exercise))
            return
        verdict = judge.check(s.check)
        print(verdict.text())
        sys.stdout.flush()
    sys.exit(not verdict.right)


def exercise(folder: pathlib.Path) -> None:
    """Write the files of the exercises, and say what to do with them."""
    new = practice.write(folder)
    first = folder / f"{practice.exercises()[0].name}.py"
    kept = len(practice.exercises()) - len(new)
    print(f"{folder}: {number_of(len(new), 'new file')}"
          + (f"; {kept} were there and stay as they are" if kept else "")
          + f".  Read the text in {first.name}, write its function, then:\n"
          f"    python -m model.walk --check {first}")


if __name__ == "__main__":
    main()
