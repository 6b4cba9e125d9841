"""What all commands share: flags from a table, and mistakes answered in a line."""
import argparse
import contextlib
import dataclasses
import difflib
import errno
import inspect
import math
import numbers
import operator
import os
import pathlib
import re
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from data import KNOWN_TEXTS, read_text
from minigrad.words import any_of, first_of, in_a_line, shown
from model.start import ROOT, quit_at_once, typed_program

SYSTEM = os.name                # which tests change
TRAIN = os.path.join(ROOT, "train.py")
NO_RIGHT = errno.EACCES, errno.EPERM, errno.EROFS
PATIENCE = 2.5                  # seconds before a long task is announced
AGAIN = 1.0                     # seconds after which an interrupt that had no effect comes again


@contextlib.contextmanager
def answering(command: str, kept: Callable[[], str] | None = None, unread: int = 1
              ) -> Iterator[None]:
    """Turn an exception of a command, or of its output, into one line on standard error and an exit
    status.

    A ValueError is a mistake of the user; its message says what is wrong and what to do.  `kept`
    returns what to say of files that were written before; `unread` is the exit status if nobody
    reads the output any more.
    """
    try:
        if signal.getsignal(signal.SIGINT) is quit_at_once:        # all is loaded
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with np.errstate(all="ignore"):     # what is not finite is said in our words
            yield
        sys.stdout.flush()
    except SystemExit:
        _flush_or_discard_output()
        raise
    except KeyboardInterrupt:
        _flush_or_discard_output()
        if kept:
            print(f"\nstopped at once; {kept()}", file=sys.stderr)
        sys.exit(130)
    except ValueError as error:
        message = error
    except MemoryError as error:
        message = (f"there is not enough memory ({error}); take a smaller model, batch or text, or "
                   "end other programs")
    except OSError as error:
        if _is_of_closed_pipe(error):
            _flush_or_discard_output()
            if kept:
                print(f"\nnobody reads the output any more; {kept()}", file=sys.stderr)
            sys.exit(unread)
        message = f"cannot use {error.filename or 'standard output'}: {error.strerror or error}"
        if error.errno in NO_RIGHT:
            message += "; first get the right to read and write there"
        elif error.errno == errno.ENOENT and error.filename:
            folder = os.path.dirname(error.filename)
            if folder and not os.path.isdir(folder):
                message += f"; first make the folder {folder}, or give another"
        if kept:
            message += f"; {kept()}"
    else:
        return
    raise SystemExit(f"{command}: {in_a_line(message)}") from None      # notebooks show all others


def _is_of_closed_pipe(error):
    """Whether nobody reads the output any more."""
    on_windows = sys.platform == "win32" and error.errno == errno.EINVAL and not error.filename
    return isinstance(error, BrokenPipeError) or on_windows


def _flush_or_discard_output():
    """Discard what has been printed if nobody reads it any more, or Python's end would fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(*lines: str) -> None:
    """Print lines about a file that is written.  If nobody reads them any more, as after `| head
    -1`, this and what follows is not shown, and the work goes on."""
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:
        if not _is_of_closed_pipe(error):
            raise
        _flush_or_discard_output()


@contextlib.contextmanager
def announced_if_slow(what: str) -> Iterator[None]:
    """Print what is being done on standard error, once, if it takes longer than PATIENCE."""
    timer = threading.Timer(PATIENCE, lambda: print(f"{what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def reading(words: Sequence[str]) -> contextlib.AbstractContextManager:
    """Say that texts are read if it takes long, as it does for a named pipe until somebody writes
    into it.  A known text has a bar."""
    files = [os.path.expanduser(word) for word in words if word not in KNOWN_TEXTS]
    if not files:
        return contextlib.nullcontext()
    pipes = [file for file in files
             if os.path.exists(file) and stat.S_ISFIFO(os.stat(file).st_mode)]
    what = f"waiting for {first_of(pipes)}" if pipes else f"reading {first_of(files)}"
    return announced_if_slow(what)


class Interrupts:
    """Records Ctrl-C and similar signals, so that a loop can stop between steps; a second signal
    raises KeyboardInterrupt, and raises it again each second while the body goes on: Python drops
    an exception in a callback from C, of which compiling has many.  Python sends signals to its
    main thread only.

    With `at_once`, the first signal raises it, so that temporary files are removed.
    """
    NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")     # a closed terminal; Windows' Ctrl-Break

    def __init__(self, at_once: bool = False) -> None:
        self.came = at_once
        self.again = None

    def __enter__(self) -> "Interrupts":
        numbers = [getattr(signal, name) for name in self.NAMES if hasattr(signal, name)
                   and threading.current_thread() is threading.main_thread()]
        # A signal that the caller ignores, as nohup does with SIGHUP, stays ignored.
        self.before = {number: signal.signal(number, self._note) for number in numbers
                       if signal.getsignal(number) is not signal.SIG_IGN}
        return self

    def __exit__(self, *error) -> None:
        if self.again:
            self.again.cancel()
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if number == getattr(signal, "SIGHUP", None):
            _discard_output_to_closed_terminal()
        if self.came:
            self._raise()
        self.came = True
        print("\nstopping after this step; once more stops at once", file=sys.stderr)

    def _raise(self):
        # Sent to the main thread, it also ends a call that waits.  Windows' sleep sees it anyway.
        send = getattr(signal, "pthread_kill", lambda _, number: signal.raise_signal(number))
        self.again = threading.Timer(AGAIN, send, [threading.main_thread().ident, signal.SIGINT])
        self.again.daemon = True
        self.again.start()
        raise KeyboardInterrupt


def _discard_output_to_closed_terminal():
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


def quoted(words: Sequence[str]) -> str:
    """Return words in a line that the shell of this system takes apart into the same words."""
    return subprocess.list2cmdline(words) if SYSTEM == "nt" else shlex.join(words)


def command_line(module: str, *words: str | os.PathLike) -> str:
    """Return a line to type in the current folder, which runs a module of Python with these words:
    "train" of this project, or one such as "model.sample" or "pip".

    The line begins as the one that started this program.  A path may begin with any character.
    """
    python, file, here = started_as()
    if module == "train" and (file or here):
        return quoted([python, file or "train.py", *map(_as_word, words)])
    before = ""
    if file and not here:               # only from its folder is it sure that Python finds a module
        before = f"cd {quoted([ROOT])} && "
        words = [pathlib.Path(word).absolute() if isinstance(word, os.PathLike) else word
                 for word in words]
        if os.path.dirname(python):
            python = os.path.abspath(python)
    return before + quoted([python, "-m", module, *map(_as_word, words)])


def started_as() -> tuple[str, str, bool]:
    """Return how the user calls Python; the path of train.py, if that was typed, else ""; and
    whether the current folder is that of train.py, which where no program of this project runs is
    taken for granted."""
    program = os.path.realpath(sys.argv[0]) if sys.argv else ""
    if not program.startswith((TRAIN, os.path.join(ROOT, "model", ""))):
        return "python", "", True
    typed = typed_program()
    python = "python" if SYSTEM == "nt" else sys.orig_argv[0]   # Windows has another path there
    file = typed if os.path.realpath(typed) == program == TRAIN else ""
    return python, file, os.path.realpath(os.curdir) == ROOT


def install_command(extra: str) -> str:
    """Return a line to type, which installs this project with an extra of setup.cfg."""
    _, _, here = started_as()
    return command_line("pip", "install", "-e", f"{'.' if here else ROOT}[{extra}]")


def _as_word(word):
    """Return a word of a command; a path that could be a flag, or a home, begins with "./"."""
    if isinstance(word, os.PathLike) and str(word).startswith(("-", "~")):
        return os.path.join(os.curdir, word)
    return str(word)


def text_or_file(value: str) -> str:
    """Return the text itself, or the contents of the file in FILE:path."""
    if not value.startswith("FILE:"):
        return value
    file = os.path.expanduser(value.removeprefix("FILE:"))
    if not os.path.exists(file):
        raise ValueError(f"there is no file {file!r}; give a UTF-8 text file as FILE:path, or a "
                         "text that does not begin with FILE:")
    with reading([file]):
        return read_text(os.path.abspath(file))


Words = tuple[str, ...]
Given = dict[str, object]       # settings by name
KINDS = {bool: (bool, "True or False"), int: (numbers.Integral, "a whole number"),
         float: (numbers.Real, "a number"), str: (str, "a text"), Words: (tuple, "texts")}
SIGNS = {int: "N", float: "X"}       # in --help
BOUNDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le,
          "below": operator.lt}
ALIKE = 0.75        # difflib's ratio from which a name may be another one mistyped
# Flags of other programs that are typed most often, and the flags here.
OTHER_NAMES = {"lr": "--learning_rate", "epochs": "--max_iters", "steps": "--max_iters",
               "layers": "--n_layer", "heads": "--n_head", "d_model": "--n_embd",
               "context_length": "--block_size", "resume": "--init_from resume",
               "prompt": "--start", "length": "--max_new_tokens"}
# What does the work of flags of train.py that older runs were started with.
ANSWERS = {"replay": "python -m model.replay --out_dir FOLDER repeats the step in its nan.npz",
           "log_interval": "the progress bar shows new numbers every ten steps"}


def flag(default: object, help: str, *, unset: str = "", alone: object = None, short: str = "",
         choices: Sequence[str] = (), finite: bool = True, **bounds: float) -> dataclasses.Field:
    """Return a dataclass field for a setting: its default, its help text, and its check.

    `unset` says what a default of None stands for.  `alone` is the value of a flag that is given
    without one; `short` another spelling, such as -o.  A text is one of `choices`, and empty only
    as a default or `alone`.  A number is finite, if `finite`, and within the bounds in BOUNDS.
    """
    return dataclasses.field(default=default, metadata=dict(
        help=help, unset=unset, alone=alone, short=short, choices=choices, finite=finite,
        bounds=bounds))


def problems(settings: object) -> list[str]:
    """Return a line for each setting of a dataclass that has an impossible value."""
    found = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        unset = value is field.default is None
        if not unset and (said := problem(field, value)):
            found.append(f"{field.name} {said}")
    return found


def problems_of_heads(C: int, H: int, H_kv: int | None = None, position: str = "") -> list[str]:
    """Return a line for channels that do not split into heads, and one for heads that cannot share
    those of keys and values, with the remedy."""
    if min(C, H) < 1:       # `problems` answers that
        return []
    found = []
    step = 2 * H if position == "rotary" else H         # from one possible n_embd to the next
    if left := C % step:
        fits = [str(n) for n in (C - left, C - left + step) if n]
        why = "heads of an even number of channels, which position rotary needs"
        found.append(f"n_embd {C} does not split into n_head {H} {'heads' if C % H else why}; "
                     f"take n_embd {any_of(fits)}")
    if H_kv and H_kv >= 1 and H % H_kv:
        fits = [str(n) for n in range(1, min(H, 1000) + 1) if H % n == 0]
        found.append(f"n_head {H} heads cannot share n_kv_head {H_kv} evenly; take "
                     f"n_kv_head {any_of(fits)}")
    return found


def names_of(table: object) -> Words:
    """Return the names of the settings of a dataclass."""
    return tuple(field.name for field in dataclasses.fields(table))


def in_flags(lines: Sequence[str], settings: object) -> list[str]:
    """Return lines about settings of a dataclass, with each name as its flag."""
    names = "|".join(names_of(settings))
    return [re.sub(rf"\b({names})\b", r"--\1", line) for line in lines]


def problem(field: dataclasses.Field, value: object) -> str | None:
    """Return what a setting should be instead of this value; None if the value is possible."""
    choices = field.metadata["choices"]
    bounds = field.metadata["bounds"]
    texts = value if field.type == Words else (value,)
    if not _has_type(field.type, value):
        return _takes(field.type, value)
    if choices and value not in choices:
        said = f"is {any_of(choices)}, not {shown(value)}"
        for near in difflib.get_close_matches(value, choices, n=1):
            said += f"; did you mean {near}?"
        return said
    if "" in texts and "" not in (field.default, field.metadata["alone"]):
        return "takes a value, and an empty one was given"
    if not all(BOUNDS[name](value, bound) for name, bound in bounds.items()):
        limits = [f"{name.replace('_', ' ')} {bound}" for name, bound in bounds.items()]
        return f"is {' and '.join(limits)}, not {shown(str(value))}"
    if field.metadata["finite"] and value == math.inf:
        return f"is a finite number, not {shown(str(value))}"


def unknown_options(config: object, known: Mapping[str, Sequence[str] | None]) -> list[str]:
    """Return the options of a configuration, or their choices, that are not among those known: for
    each option its choices, or None if it has none.  Whatever computes the model anew asks this, so
    that it does not compute another one."""
    found = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in known:
            found.append(f"the option {field.name}")
        elif known[field.name] and value not in known[field.name]:
            found.append(f"{field.name} {value}")
    return found


def _has_type(type, value):
    if type is float and isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    return isinstance(value, KINDS[type][0]) and isinstance(value, bool) == (type is bool)


def _takes(type, value):
    return f"takes {KINDS[type][1]}, not {shown(repr(value))}"


def _plainly(type, word):
    """Return a whole number that was written in another way, such as 1e3 or 1,000, in digits."""
    with contextlib.suppress(ValueError, OverflowError):
        number = float(word.replace(",", ""))
        if type is int and number == int(number):
            return f"; write {int(number)}"
    return ""


def as_flags(values: Given) -> list[str]:
    """Return settings as flags, except those that are None."""
    flags = []
    for name, value in values.items():
        if isinstance(value, bool):
            flags.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            flags.append(f"--{name} {str(value).removesuffix('.0')}")
    return flags


def _spellings(field):
    """Return the flags of a setting, the first one first."""
    name = field.name.rstrip("_")       # as_ is the flag --as, a word that Python keeps for itself
    found = [f"--{name}", f"--{name.replace('_', '-')}", field.metadata["short"]]
    return filter(None, dict.fromkeys(found))


class _Help(argparse.RawDescriptionHelpFormatter):
    """Shows each flag in its first spelling alone, and its value once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _format_action_invocation(self, action):
        if not action.option_strings:
            return super()._format_action_invocation(action)
        flags = [flag for flag in action.option_strings
                 if "-" not in flag.lstrip("-").removeprefix("no-")]
        value = self._format_args(action, action.dest.rstrip("_").upper())
        return f"{', '.join(flags)} {value}".rstrip()


class _Switch(argparse.BooleanOptionalAction):
    """Adds True to a list for each --flag, and False for each --no-flag."""

    def __call__(self, parser, namespace, values, word=None):
        before = getattr(namespace, self.dest, [])
        setattr(namespace, self.dest, [*before, not word.startswith("--no-")])


def _takes_words(field):
    """Return what argparse is to do with the words after a flag: add them to a list."""
    if field.type is bool:
        return {"action": _Switch}
    if field.type == Words:
        return {"nargs": "+", "action": "extend"}
    found = {"action": "append"}
    if field.type in SIGNS:
        found["metavar"] = SIGNS[field.type]
    if field.metadata["alone"] is not None:
        found |= {"nargs": "?", "const": field.metadata["alone"]}
    return found


def _title(table):
    """Return what a table of settings is called: with what its docstring begins or, if Python has
    left that out (-OO), its name."""
    if table.__doc__.startswith(f"{table.__name__}("):      # dataclass puts this in its place
        return re.sub("(?<=[a-z])(?=[A-Z])", " ", table.__name__).capitalize()
    return re.split("[.:;]", table.__doc__)[0]


class Parser(argparse.ArgumentParser):
    """A command-line parser with a flag for each field of a dataclass.

    Names may have underscores or hyphens.  The defaults that --help shows are those of `settings`,
    the dataclass or an instance of it.  Flags that it inherits stand in groups, one for each base,
    whose docstring begins with the title.
    """

    def __init__(self, command: str, description: str, settings: object) -> None:
        super().__init__(prog=command.split()[-1], description=description, allow_abbrev=False,
                         usage=f"{command} [--flag value ...]   (--help lists them all)",
                         formatter_class=_Help)
        self.fields = {field.name: field for field in dataclasses.fields(settings)}
        table = settings if isinstance(settings, type) else type(settings)
        base_of = {name: base for base in reversed(table.__mro__)
                   for name in inspect.get_annotations(base)}
        groups = {base: self.add_argument_group(_title(base))
                  for base in dict.fromkeys(base_of.values()) if base is not table}
        for name, field in self.fields.items():
            default = getattr(settings, name)
            if default is None:
                default = field.metadata["unset"]
            elif field.type == Words:
                default = " ".join(default)
            help = field.metadata["help"].replace("%", "%%")
            if default != "":
                help += f" (default: {default})"
            groups.get(base_of[name], self).add_argument(
                *_spellings(field), dest=name, default=argparse.SUPPRESS, help=help,
                **_takes_words(field))
        if any("_" in name.rstrip("_") for name in self.fields):
            self.epilog = "A flag may have hyphens in place of underscores."

    def given(self, argv: list[str] | None) -> Given:
        """Return the settings on the command line, by name; exit if there are mistakes."""
        known, mistakes = self.read(argv)
        self.refuse(mistakes)
        self.warn()
        return known

    def read(self, argv: list[str] | None) -> tuple[Given, list[str]]:
        """Return the settings on the command line, by name, and a line for each mistake."""
        words = sys.argv[1:] if argv is None else argv
        found, unknown = self.parse_known_args(words)
        self.counts = {}        # how often each flag of one value is given
        known = {}
        mistakes = []
        for name, word in vars(found).items():
            field = self.fields[name]
            if field.type != Words:
                self.counts[name] = len(word)
                word = word[-1]
            flag = f"--{name.rstrip('_')}"
            if flag not in self._option_string_actions:
                flag = name
            if word == []:      # argparse takes the -- of --flag=-- away
                word = ["--"] if field.type == Words else "--"
            try:
                known[name] = field.type(word)
                said = problem(field, known[name])
            except ValueError:
                said = _takes(field.type, word) + _plainly(field.type, word)
            if said:
                mistakes.append(f"{flag} {said}")
                if field.type in (str, Words):          # what it stands for is not looked for
                    known.pop(name)
        flags = [word.split("=")[0] for word in unknown if word.startswith("-")]
        mistakes += [f"there is no flag {word}; {self._instead_of(word)}" for word in flags]
        if not flags:           # else the words may belong to an unknown flag
            before = dict(zip(words[1:], words))
            mistakes += [self._alone(word, before.get(word)) for word in unknown]
        return known, mistakes

    def warn(self) -> None:
        """Say of each flag that was given more than once that its last value counts."""
        for name, count in self.counts.items():
            if count > 1:
                print(f"warning: --{name.rstrip('_')} is given {count} times; the last one counts",
                      file=sys.stderr)

    def _alone(self, word, before):
        """Return what is wrong with a word that is not a flag's, and stands after another one."""
        remedy = self._for_word(word)
        if not remedy and isinstance(self._option_string_actions.get(before), _Switch):
            return f"{before} takes no value; {self._alone_or_not(before)}, without {word!r}"
        return f"no flag takes {word!r}; {remedy or 'see --help'}"

    def _alone_or_not(self, flag):
        """Return what to type in place of a flag that was given a value."""
        name = flag.removeprefix("--").removeprefix("no-")
        no = f", or --no-{name}" if f"--no-{name}" in self._option_string_actions else ""
        return f"give {flag.replace('--no-', '--')} alone{no}"

    def _for_word(self, word):
        """Return what to type instead of a word that no flag takes; "" if that is not known."""
        typed = quoted([word])
        is_file = os.path.isfile(word) or bool(pathlib.Path(word).suffix)
        ending = pathlib.Path(word).suffix.lower()
        if word == "resume" and "init_from" in self.fields:
            return "did you mean --init_from resume?"
        for name, flag_of in (("check", ".py"), ("output", ".html")):
            if name in self.fields and ending == flag_of:
                return f"did you mean --{name} {typed}?"
        if "data" in self.fields and (word in KNOWN_TEXTS or is_file or os.path.exists(word)):
            return f"give a text as --data {typed}"
        if "out_dir" in self.fields and (os.path.isdir(word) or ending == ".npz"):
            return f"did you mean --out_dir {typed}?"
        if "score" in self.fields and is_file:
            return f"did you mean --score {typed}, or --start {quoted([f'FILE:{word}'])}?"
        for name, field in self.fields.items():
            if word in field.metadata["choices"] or (name in ("start", "text") and not is_file):
                return f"did you mean --{name} {typed}?"
        return ""

    def _instead_of(self, word):
        """Return what to type instead of an unknown flag."""
        flags = {flag.lstrip("-").replace("-", "_"): flag
                 for flag in reversed(self._option_string_actions)}
        name = word.lstrip("-").replace("-", "_").lower()
        if name in ANSWERS:
            return ANSWERS[name]
        other = OTHER_NAMES.get(name, "")
        if other.split(" ")[0] in flags.values():
            return f"did you mean {other}?"
        for like in difflib.get_close_matches(name, flags, 1, ALIKE):
            return f"did you mean {flags[like]}?"
        return "see --help"

    def refuse(self, mistakes: Sequence[str]) -> None:
        """Print each different mistake in a line, and exit; do nothing if there is none."""
        if mistakes:
            self.exit(2, "".join(f"{self.prog}: error: {in_a_line(mistake)}\n"
                                 for mistake in dict.fromkeys(mistakes)))

    def error(self, message: str) -> None:
        """Print what is wrong in a line, and exit."""
        if bare := re.fullmatch("argument ([^/]+).*: expected .*argument", message):
            message = (f"{bare[1]} takes a value, and none was given; one that starts with a "
                       f"hyphen is written as {bare[1]}=-value")
        if ignored := re.fullmatch("argument ([^/]+).*: ignored explicit argument (.*)", message):
            flag, word = ignored.groups()
            message = f"{flag} takes no value; {self._alone_or_not(flag)}, without {word}"
        if "required" in message:
            message += "; see --help, and write a name that starts with a hyphen as ./-name"
        self.refuse([message])
