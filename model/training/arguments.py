"""The command line of train.py: the settings and the text of a run, and one line for a mistake."""
import contextlib
import dataclasses
import sys
from collections.abc import Iterator

import data
from minigrad.kernels.build import threads
from model.console.flags import Parser, answering
from model.console.options import mistyped
from model.ranks.alike import check_alike
from model.ranks.ranks import Ranks
from model.storage.checkpoint import Checkpoint
from model.training.folder import Folder
from model.training.recipes import MINUTES, MODERN, completed
from model.training.settings import ARCHITECTURE, Settings
from model.transformer import meant


def parsed(argv: list[str] | None, description: str) -> tuple[dict[str, object], list[str], Parser]:
    """Return the flags that are given, a line for each mistake in them, and their parser."""
    parser = Parser("python train.py", description, Settings(**MODERN, minutes=MINUTES))
    given, mistakes = parser.read(argv)
    if "replay" in given and (others := given.keys() - {"replay"}):
        mistakes.append("--replay takes all from its file; leave out "
                        + ", ".join(f"--{name}" for name in sorted(others)))
    return given, mistakes, parser


def prepared(given: dict[str, object], mistakes: list[str], parser: Parser, folder: Folder,
             ranks: Ranks) -> tuple[Settings, data.Text, Checkpoint | None]:
    """Return the settings of a run, its text and, to resume one, its checkpoint.  Answer all
    mistakes at once.  Of several ranks, the first reads for all."""
    check_alike(ranks, given)
    resumed, text, unreadable, elsewhere = None, None, [], ""
    if given.get("out_dir") != "":          # an empty one is refused
        given["out_dir"] = str(folder)      # here, wherever a resumed run was begun
    if given.get("init_from") == "resume":
        resumed = folder.resume(only_look=given.get("explain", False))
        elsewhere = ("" if "data" in given else f".  The run in {folder} was trained on it; "
                     "where the same text is in another file, give that with --data FILE")
        given, wrong = resumed_settings(given, resumed, folder)
        mistakes = mistakes + wrong
    try:
        name = given.get("data", Settings.data)
        text = data.Text(ranks.made_by_first(lambda: data.read_text(name)), name)
    except data.TextError as error:
        unreadable = [f"{error}{elsewhere}"]
    s = Settings(**given if resumed else completed(given, len(text or "")))
    if ranks.first:
        parser.refuse(mistakes + s.problems() + problems_of_ranks(s, ranks.size)
                      + (unreadable or s.problems_with(text)))
    ranks.meet()
    if resumed and resumed.training["text"] != text.digest:
        raise data.TextError(f"the text {s.data} is not the one that the run in {folder} was "
                             "trained on; give that with --data, or train anew into another "
                             "--out_dir")
    for warning in s.warnings():
        print(f"warning     {warning}")
    return s, text, resumed


def problems_of_ranks(s: Settings, size: int) -> list[str]:
    """Return the settings that do not go with this number of ranks, one line each."""
    found = []
    if s.explain and size > 1:
        found.append("--explain goes through a step of one process; start it without mpiexec")
    if s.reduce == "exact" and s.batch_size % size:
        found.append(f"--reduce exact takes a number of ranks that divides --batch_size "
                     f"{s.batch_size}, and {size} do not; take another number of either")
    return found


def resumed_settings(given: dict[str, object], resumed: Checkpoint, folder: Folder
                     ) -> tuple[dict[str, object], list[str]]:
    """Return the settings of a resumed run, by name, and a line for each that it cannot have."""
    # Older checkpoints lack some settings, which then were those of this recipe.
    earlier = dataclasses.asdict(Settings(recipe="gpt2")) | resumed.training["settings"]
    if wrong := mistyped(Settings, earlier):
        raise ValueError(f"the run in {folder} has settings of another type than theirs "
                         f"({', '.join(wrong)}); train anew into another --out_dir")
    if unknown := earlier.keys() - {field.name for field in dataclasses.fields(Settings)}:
        raise ValueError(f"the run in {folder} has settings that this version does not know "
                         f"({', '.join(sorted(unknown))}); train anew into another --out_dir")
    earlier["threads"] = min(earlier["threads"], threads.limit()[0])    # of this machine
    mistakes = []
    for name, other in (("minutes", "max_iters"), ("max_iters", "minutes")):
        if name in given and other not in given:        # the end that was meant before
            earlier[other] = None
    for name in ("recipe", *ARCHITECTURE, "optimizer", "seed"):
        was = meant(Settings(**earlier), name)
        if given.get(name, was) != was:
            mistakes.append(f"the run in {folder} has --{name} {was}, which cannot become "
                            f"{given[name]} on the way; leave the flag out, or train anew into "
                            "another --out_dir")
            given = given | {name: earlier[name]}
    return earlier | given, mistakes


@contextlib.contextmanager
def answered(folder: Folder) -> Iterator[None]:
    """Answer what goes wrong as `answering` does, and say what is saved in the folder."""
    with answering("train.py"):
        try:
            yield
        except MemoryError as error:
            raise ValueError(f"there is not enough memory ({error}); take a smaller --batch_size, "
                             "--block_size or --n_embd") from error
        except BrokenPipeError:
            raise
        except OSError as error:
            what, otherwise = ((f"into {folder}", "give another folder with --out_dir")
                               if error.filename else ("what it has to say", "send that elsewhere"))
            raise ValueError(
                f"cannot write {what}: {error.strerror or error}; " + data.remedy(error, otherwise)
                + (f".  What was saved in {folder} before is whole; go on from it with "
                   f"{folder.resume_command()}" if folder.holds_run() else "")) from error
        except KeyboardInterrupt:
            kept = (f"what was saved before is in {folder}" if folder.holds_run()
                    else "nothing had been saved yet")
            print(f"\nstopped at once; {kept}", file=sys.stderr)
            raise
