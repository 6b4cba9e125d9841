"""The command line: flags from a table of options, and mistakes that are answered in a line."""
import argparse
import contextlib
import dataclasses
import difflib
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Sequence

from data import KNOWN_TEXTS
from minigrad.words import in_a_line
from model.answers import quoted
from model.options import Values, Words, problem, takes

SIGNS = {int: "N", float: "X"}       # in --help
ALIKE = 0.75        # difflib's ratio from which a name may be another one mistyped
# Flags of other programs that are typed most often, and the flags here.
OTHER_NAMES = {"lr": "--learning_rate", "epochs": "--max_iters", "steps": "--max_iters",
               "layers": "--n_layer", "heads": "--n_head", "d_model": "--n_embd",
               "context_length": "--block_size", "resume": "--init_from resume",
               "prompt": "--start", "length": "--max_new_tokens"}
# What does the work of flags of train.py that older runs were started with.
ANSWERS = {"replay": "python -m model.replay --out_dir FOLDER repeats the step in its nan.npz",
           "log_interval": "the progress bar shows new numbers every ten steps"}


def _plainly(type, word):
    """Return a whole number that was written in another way, such as 1e3 or 1,000, in digits."""
    with contextlib.suppress(ValueError, OverflowError):
        number = float(word.replace(",", ""))
        if type is int and number == int(number):
            return f"; write {int(number)}"
    return ""


def _spellings(field):
    """Return the flags of a setting, the first one first."""
    name = field.name.rstrip("_")       # as_ is the flag --as, a word that Python keeps for itself
    spellings = [f"--{name}", f"--{name.replace('_', '-')}", field.metadata["short"]]
    return filter(None, dict.fromkeys(spellings))


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
    action = {"action": "append"}
    if field.type in SIGNS:
        action["metavar"] = SIGNS[field.type]
    if field.metadata["alone"] is not None:
        action |= {"nargs": "?", "const": field.metadata["alone"]}
    return action


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
        super().__init__(
            prog=command.split()[-1],
            description=description,
            usage=f"{command} [--flag value ...]   (--help lists them all)",
            formatter_class=_Help,
            allow_abbrev=False,
            exit_on_error=False)
        self.fields = {field.name: field for field in dataclasses.fields(settings)}
        self.switches = {"-h", "--help"}    # flags without a value
        self.flags = ["-h", "--help"]       # all flags, in each spelling
        table = settings if isinstance(settings, type) else type(settings)
        bases = {name: base for base in reversed(table.__mro__)
                 for name in inspect.get_annotations(base)}
        groups = {base: self.add_argument_group(_title(base))
                  for base in dict.fromkeys(bases.values()) if base is not table}
        for name, field in self.fields.items():
            default = getattr(settings, name)
            if default is None:
                default = field.metadata["unset"]
            elif field.type == Words:
                default = " ".join(default)
            help = field.metadata["help"].replace("%", "%%")
            if default != "":
                help += f" (default: {default})"
            action = groups.get(bases[name], self).add_argument(
                *_spellings(field),
                dest=name,
                default=argparse.SUPPRESS,
                help=help,
                **_takes_words(field))
            self.flags += action.option_strings
            if field.type is bool:
                self.switches.update(action.option_strings)
        if any("_" in name.rstrip("_") for name in self.fields):
            self.epilog = "A flag may have hyphens in place of underscores."

    def parse(self, argv: list[str] | None) -> Values:
        """Return the settings on the command line, by name; exit if there are mistakes."""
        known, mistakes = self.read(argv)
        self.refuse(mistakes)
        self.warn()
        return known

    def read(self, argv: list[str] | None) -> tuple[Values, list[str]]:
        """Return the settings on the command line, by name, and a line for each mistake."""
        words = sys.argv[1:] if argv is None else argv
        try:
            namespace, unknown = self.parse_known_args(words)
        except argparse.ArgumentError as error:
            if error.argument_name is None:     # from Python 3.13 on, where words are missing
                self.error(error.message)
            self.refuse([self._explain_value(error.argument_name, words)])
        self.counts = {}        # how often each flag of one value is given
        settings = {}
        mistakes = []
        for name, word in vars(namespace).items():
            field = self.fields[name]
            if field.type != Words:
                self.counts[name] = len(word)
                word = word[-1]
            flag = f"--{name.rstrip('_')}"
            if flag not in self.flags:
                flag = name
            if word == []:      # argparse takes the -- of --flag=-- away
                word = ["--"] if field.type == Words else "--"
            try:
                settings[name] = field.type(word)
                complaint = problem(field, settings[name])
            except ValueError:
                complaint = takes(field.type, word) + _plainly(field.type, word)
            if complaint:
                mistakes.append(f"{flag} {complaint}")
                if field.type in (str, Words):          # what it stands for is not looked for
                    settings.pop(name)
        flags = [word.split("=")[0] for word in unknown if word.startswith("-")]
        mistakes += [f"there is no flag {word}; {self._suggest_for_flag(word)}" for word in flags]
        if not flags:           # else the words may belong to an unknown flag
            before = dict(zip(words[1:], words))
            mistakes += [self._explain_stray_word(word, before.get(word)) for word in unknown]
        return settings, mistakes

    def warn(self) -> None:
        """Say of each flag that was given more than once that its last value counts."""
        for name, count in self.counts.items():
            if count > 1:
                print(f"warning: --{name.rstrip('_')} is given {count} times; the last one counts",
                      file=sys.stderr)

    def _explain_value(self, argument, words):
        """Return what is wrong with a flag that has no value, or one that it does not take.
        `argument` has its spellings, as "--fast/--no-fast"."""
        flag = argument.split("/")[0]
        if flag not in self.switches:
            return (f"{flag} takes a value, and none was given; one that starts with a hyphen is "
                    f"written as {flag}=-value")
        values = [word.removeprefix(spelling).removeprefix("=")
                  for word in words for spelling in argument.split("/")
                  if word.startswith(f"{spelling}=") or (spelling == word[:2] != word)]
        return f"{flag} takes no value; {self._suggest_without_value(flag)}, without {values[0]!r}"

    def _explain_stray_word(self, word, before):
        """Return what is wrong with a word that is not a flag's, and stands after another one."""
        remedy = self._suggest_for_word(word)
        if not remedy and before in self.switches:
            alone = self._suggest_without_value(before)
            return f"{before} takes no value; {alone}, without {word!r}"
        return f"no flag takes {word!r}; {remedy or 'see --help'}"

    def _suggest_without_value(self, flag):
        """Return what to type in place of a flag that was given a value."""
        name = flag.removeprefix("--").removeprefix("no-")
        no = f", or --no-{name}" if f"--no-{name}" in self.flags else ""
        return f"give {flag.replace('--no-', '--')} alone{no}"

    def _suggest_for_word(self, word):
        """Return what to type instead of a word that no flag takes; "" if that is not known."""
        quoted_word = quoted([word])
        is_file = os.path.isfile(word) or bool(pathlib.Path(word).suffix)
        ending = pathlib.Path(word).suffix.lower()
        if word == "resume" and "init_from" in self.fields:
            return "did you mean --init_from resume?"
        for name, suffix in (("check", ".py"), ("output", ".html")):
            if name in self.fields and ending == suffix:
                return f"did you mean --{name} {quoted_word}?"
        if "data" in self.fields and (word in KNOWN_TEXTS or is_file or os.path.exists(word)):
            return f"give a text as --data {quoted_word}"
        if "out_dir" in self.fields and (os.path.isdir(word) or ending == ".npz"):
            return f"did you mean --out_dir {quoted_word}?"
        if "score" in self.fields and is_file:
            return f"did you mean --score {quoted_word}, or --start {quoted([f'FILE:{word}'])}?"
        for name, field in self.fields.items():
            if word in field.metadata["choices"] or (name in ("start", "text") and not is_file):
                return f"did you mean --{name} {quoted_word}?"
        return ""

    def _suggest_for_flag(self, word):
        """Return what to type instead of an unknown flag."""
        flags = {flag.lstrip("-").replace("-", "_"): flag for flag in reversed(self.flags)}
        name = word.lstrip("-").replace("-", "_").lower()
        if name in ANSWERS:
            return ANSWERS[name]
        other = OTHER_NAMES.get(name, "")
        if other.split(" ")[0] in flags.values():
            return f"did you mean {other}?"
        similar = difflib.get_close_matches(
            name,
            flags,
            n=1,
            cutoff=ALIKE)
        if similar:
            return f"did you mean {flags[similar[0]]}?"
        return "see --help"

    def refuse(self, mistakes: Sequence[str]) -> None:
        """Print each different mistake in a line, and exit; do nothing if there is none."""
        if mistakes:
            self.exit(2, "".join(f"{self.prog}: error: {in_a_line(mistake)}\n"
                                 for mistake in dict.fromkeys(mistakes)))

    def error(self, message: str) -> None:
        """Answer that words are missing which have no flag.  argparse calls this."""
        self.refuse([f"{message}; see --help, and write a name that starts with a hyphen as "
                     "./-name"])
