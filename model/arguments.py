"""The command line of train.py: the settings and the text of a run, and one line for a mistake."""
import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Iterable, Iterator

import data
from minigrad import compiled
from model.checkpoint import (Checkpoint, describe_initial, initial_path, load_initial,
                              read_by_first, texts_of, with_characters_of)
from model.command import Parser, answering, first_of, mistyped, shown
from model.processes import Ranks
from model.report import listed
from model.run import Folder
from model.settings import ARCHITECTURE, MINUTES, MODERN, OF_MODEL, Settings, completed
from model.transformer import TransformerConfig, meant


def parsed(argv: list[str] | None, description: str) -> tuple[dict[str, object], list[str], Parser]:
    """Return the flags that are given, a line for each mistake in them, and their parser."""
    parser = Parser("python train.py", description, Settings(**MODERN, minutes=MINUTES))
    given, mistakes = parser.read(argv)
    if "replay" in given and (others := given.keys() - {"replay"}):
        mistakes.append("--replay takes all from its file; leave out "
                        + ", ".join(f"--{name}" for name in sorted(others)))
    return given, mistakes, parser


def prepared(given: dict[str, object], mistakes: list[str], parser: Parser, folder: Folder,
             ranks: Ranks) -> tuple[Settings, data.Text, Checkpoint | None, Checkpoint | None]:
    """Return the settings of a run, its text, the checkpoint whose weights it begins with and that
    which it resumes, if there is one.  Answer all mistakes at once.  Of several ranks, the first
    reads for all."""
    begun, resumed, text, unreadable, elsewhere = None, None, None, [], ""
    given["out_dir"] = str(folder)      # here, wherever a resumed run was begun
    init_from = given.get("init_from", Settings.init_from)
    if init_from == "resume":
        resumed = read_by_first(ranks, lambda: folder.resume(given.get("explain", False)))
        elsewhere = ("" if "data" in given else f".  The run in {folder} was trained on it; "
                     "where the same text is in another file, give that with --data FILE")
        given, wrong = resumed_settings(given, resumed, folder)
        mistakes = mistakes + wrong
    elif init_from != "scratch":
        begun = read_by_first(ranks, lambda: load_initial(init_from))
        given, wrong = begun_settings(given, begun.model.config, initial_path(init_from))
        mistakes = mistakes + wrong
    try:
        texts = ranks.made_by_first(lambda: data.read_texts(given.get("data", Settings.data)))
        known = begun or resumed
        tokenizer, new = (with_characters_of(texts.characters, known.tokenizer) if known
                          else (None, {}))
        text = data.Text(texts.characters, texts.name, tokenizer)
        given["data"] = tuple(name for name, _ in texts.taken)
    except data.TextError as error:
        unreadable = [f"{error}{elsewhere}"]
    except MemoryError as error:
        raise ValueError("there is not enough memory for the text; give a shorter one") from error
    s = Settings(**given if resumed else completed(given, len(text or "")))
    if ranks.first:
        parser.refuse(mistakes + s.problems() + problems_of_ranks(s, ranks.size)
                      + (unreadable or s.problems_with(text)))
    ranks.meet()
    if resumed and resumed.training["text"] != text.digest:
        raise data.TextError(f"the text {text.name} is not the one that the run in {folder} was "
                             "trained on; give that with --data, or train anew into another "
                             "--out_dir")
    if said := listed(texts):
        print("files       " + said)
    if begun:
        print("begins      " + describe_initial(initial_path(init_from), begun.model.config,
                                                s.block_size, new))
    for warning in s.warnings():
        print(f"warning     {warning}")
    return s, text, begun, resumed


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
    earlier = (dataclasses.asdict(Settings(recipe="gpt2")) | resumed.training["settings"]
               | {"data": texts_of(resumed.training) or Settings.data})
    if wrong := mistyped(Settings, earlier):
        raise ValueError(f"the run in {folder} has settings of another type than theirs "
                         f"({', '.join(wrong)}); train anew into another --out_dir")
    if unknown := earlier.keys() - {field.name for field in dataclasses.fields(Settings)}:
        raise ValueError(f"the run in {folder} has settings that this version does not know "
                         f"({first_of([*map(shown, sorted(unknown))])}); train anew into another "
                         "--out_dir")
    earlier["threads"] = min(earlier["threads"], compiled.thread_limit()[0])    # of this machine
    for name, other in (("minutes", "max_iters"), ("max_iters", "minutes")):
        if name in given and other not in given:        # the end that was meant before
            earlier[other] = None
    mistakes = contradictions(
        given, Settings(**earlier), ("recipe", *ARCHITECTURE, "optimizer", "seed"),
        f"the run in {folder}", " on the way; leave the flag out, or train anew into another "
                                "--out_dir")
    given = {name: value for name, value in given.items() if name not in (*mistakes, "init_from")}
    return earlier | given, list(mistakes.values())


def begun_settings(given: dict[str, object], config: TransformerConfig, path: pathlib.Path
                   ) -> tuple[dict[str, object], list[str]]:
    """Return the settings of a run that begins with the weights of a checkpoint, by name, and a
    line for each that does not go with them."""
    its = {name: getattr(config, name) for name in OF_MODEL}
    its |= {name: float(its[name]) for name in ("norm_eps", "rotary_base")}     # may be integers
    mistakes = contradictions(given, config, [name for name in its if name != "block_size"],
                              f"the model in {path}", "; leave the flag out")
    longest, wanted = config.block_size, given.get("block_size", 0)
    if config.position == "learned" and wanted > longest:
        mistakes["block_size"] = (f"--block_size {wanted} is more than the {longest} positions "
                                  f"that the model in {path} has learnt; take {longest} or less")
    given = {name: value for name, value in given.items() if name not in mistakes}
    return its | given | {"init_from": str(path.absolute())}, list(mistakes.values())


def contradictions(given: dict[str, object], earlier: object, names: Iterable[str], whose: str,
                   remedy: str) -> dict[str, str]:
    """Return, by name, a line for each of the settings with these names that is not given as it
    was earlier."""
    found = {}
    for name in names:
        was = meant(earlier, name)
        if given.get(name, was) != was:
            found[name] = (f"{whose} has --{name} {shown(was)}, which cannot become {given[name]}"
                           f"{remedy}")
    return found


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
                f"cannot write {what}: {error.strerror or error}; {otherwise}"
                + (f".  What was saved in {folder} before is whole; go on from it with "
                   f"{folder.resume_command()}" if folder.holds_run() else "")) from error
        except KeyboardInterrupt:
            kept = (f"what was saved before is in {folder}" if folder.holds_run()
                    else "nothing had been saved yet")
            print(f"\nstopped at once; {kept}", file=sys.stderr)
            raise
