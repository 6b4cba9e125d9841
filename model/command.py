"""Numbers, lists and messages in words.

Options: dataclass fields that say their default, their help and what they can be.

A line for whoever waits.

Ctrl-C and similar signals, on which a loop stops between its steps.

Settings as flags on a command line: nanoGPT's names, and help for mistakes.
"""
import argparse
import contextlib
import dataclasses
import difflib
import itertools
import math
import numbers
import operator
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator, Sequence

from data import read_text
from model import startup

OF_VALUE, OF_ERROR = 80, 200    # characters of a value of a file, and of an error, in a message


def number_of(n: float, what: str) -> str:
    """Return a count with its noun, as "1 layer" or "2,000 layers"."""
    return f"{n:,}".removesuffix(".0") + f" {what}" + "s" * (n != 1)


def scaled(n: float, unit: str) -> str:
    """Return four digits of a number, with one of the prefixes k, M, G, T, P."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if n < 999.95 or prefix == "P":
            return f"{n:#.4g} {prefix}{unit}".rstrip()
        n /= 1000


def any_of(words: list[str]) -> str:
    """Return words as "a, b or c"."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def first_of(words: list[str], most: int = 5) -> str:
    """Return words as "a, b and 1,000 more"."""
    return ", ".join(words[:most]) + f" and {len(words) - most:,} more" * (len(words) > most)


def shown(value: object) -> str:
    """Return a value of a file, or an error that may quote one, as a message can hold it: in a
    line, and not long."""
    longest = OF_ERROR if isinstance(value, Exception) else OF_VALUE
    said = str(value) if isinstance(value, str | Exception) else repr(value)
    line = in_a_line(said[:longest + 1])
    return line if len(line) <= longest else f"{line[:longest]}..."


def in_a_line(message: object) -> str:
    """Return a message with line breaks and the like escaped; they may come from a file's name or
    the command line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(message))


Words = tuple[str, ...]
KINDS = {bool: (bool, "True or False"), int: (numbers.Integral, "a whole number"),
         float: (numbers.Real, "a number"), str: (str, "a text"), Words: (tuple, "texts")}
BOUNDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le,
          "below": operator.lt}


def flag(default: object, help: str, *, unset: str = "", alone: object = None, short: str = "",
         choices: Sequence[str] = (), finite: bool = True, **bounds: float) -> dataclasses.Field:
    """Return a dataclass field for a setting: its default, its text in --help, and its check.

    `unset` says what a default of None stands for.  `alone` is the value of a flag that stands
    alone, if it can; `short` another spelling, such as -o.  A text is one of `choices`, and empty
    only if `default` or `alone` is.  A number is finite, if `finite`, and within bounds, by the
    names in BOUNDS.
    """
    return dataclasses.field(default=default, metadata=dict(
        help=help, unset=unset, alone=alone, short=short, choices=choices, finite=finite,
        bounds=bounds))


def problems(settings: object) -> list[str]:
    """Return a line for each setting of a dataclass that cannot have its value."""
    found = ((field, getattr(settings, field.name)) for field in dataclasses.fields(settings))
    return [f"--{field.name} {said}" for field, value in found
            if (value is not None or field.default is not None)
            and (said := problem(field, value))]


def problem(field: dataclasses.Field, value: object) -> str | None:
    """Return what a setting should be instead of this value; None if it can be used."""
    choices, bounds = field.metadata["choices"], field.metadata["bounds"]
    if not _is_of(field.type, value):
        return of_another_type(field.type, value)
    if choices and value not in choices:
        near = difflib.get_close_matches(value, choices, n=1)
        return (f"is {any_of(choices)}, not {shown(value)}"
                + (f"; did you mean {near[0]}?" if near else ""))
    if (value == "" or field.type == Words and "" in value) and "" not in (
            field.default, field.metadata["alone"]):
        return "takes a value, and an empty one was given"
    if not all(BOUNDS[name](value, bound) for name, bound in bounds.items()):
        said = [f"{name.replace('_', ' ')} {bound}" for name, bound in bounds.items()]
        return f"is {' and '.join(said)}, not {shown(str(value))}"
    if field.metadata["finite"] and value == math.inf:
        return f"is a finite number, not {shown(str(value))}"


def _is_of(type, value):
    """Whether a value is one of an option's type, and no whole number beyond all floats."""
    if type is float and isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    return isinstance(value, KINDS[type][0]) and isinstance(value, bool) == (type is bool)


def of_another_type(type: type, value: object) -> str:
    """Return what an option of a type takes, and that it is not this value."""
    return f"takes {KINDS[type][1]}, not {shown(repr(value))}"


def mistyped(settings: type, values: dict[str, object]) -> list[str]:
    """Return the names of settings whose values, such as those in a file, have a wrong type."""
    fields = {field.name: field for field in dataclasses.fields(settings)}
    return [name for name, value in values.items() if name in fields
            and not _is_of(fields[name].type, value)
            and (value is not None or fields[name].default is not None)]


def as_flags(values: dict[str, object]) -> list[str]:
    """Return settings as they are typed, except those that are None."""
    return [f"--{'' if value else 'no-'}{name}" if isinstance(value, bool) else
            f"--{name} {str(value).removesuffix('.0')}"
            for name, value in values.items() if value is not None]


PATIENCE = 2.5      # seconds


@contextlib.contextmanager
def told_if_slow(what: str) -> Iterator[None]:
    """Say on standard error what is done, once, if it takes long."""
    timer = threading.Timer(PATIENCE, lambda: print(f"{what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Interrupts:
    """Records Ctrl-C and similar signals, so that a loop can stop between steps; a second one stops
    at once.  Python sends signals to its main thread only; in another thread this does nothing."""
    NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")     # a closed terminal; Windows' Ctrl-Break

    def __enter__(self) -> "Interrupts":
        self.came = False
        numbers = [getattr(signal, name) for name in self.NAMES if hasattr(signal, name)
                   and threading.current_thread() is threading.main_thread()]
        # A signal that the caller ignores, as nohup does with SIGHUP, stays ignored.
        self.before = {number: signal.signal(number, self._note) for number in numbers
                       if signal.getsignal(number) is not signal.SIG_IGN}
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        if self.came:
            raise KeyboardInterrupt
        self.came = True
        if number == getattr(signal, "SIGHUP", None):
            _let_go_of_terminal()
        print("\nstopping after this step; once more stops at once", file=sys.stderr)


class AtOnce(Interrupts):
    """Ends what runs on any of these signals as Ctrl-C does, so that it removes what it began."""

    def _note(self, number, frame):
        if number == getattr(signal, "SIGHUP", None):
            _let_go_of_terminal()
        raise KeyboardInterrupt


def _let_go_of_terminal():
    """Discard output to a terminal that was closed, instead of failing."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode) and not os.isatty(number):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)


ALIKE = 0.75        # at this ratio of difflib, a name may be another one mistyped
# Flags as other programs name them.  A name may be in several lines: the first line whose flags the
# command has is the answer.
OTHER_NAMES = {
    "--init_from resume": "resume resume_from resume_from_checkpoint continue restore load "
                          "checkpoint ckpt",
    "--max_iters or --minutes": "epochs num_epochs n_epochs max_epochs num_train_epochs",
    "--minutes": "time max_time hours",
    "--max_iters": "epochs num_epochs n_epochs max_epochs steps max_steps num_steps n_steps "
                   "train_steps iters iterations num_iters num_iterations",
    "--learning_rate": "lr rate max_lr step_size",
    "--min_lr": "min_learning_rate lr_min",
    "--batch_size": "bs batch per_device_train_batch_size device_batch_size micro_batch_size",
    "--gradient_accumulation_steps": "grad_accum accumulation_steps accumulate_grad_batches",
    "--n_layer": "layer layers num_layers num_hidden_layers depth",
    "--n_head": "head heads num_heads num_attention_heads",
    "--n_kv_head": "kv_heads num_kv_heads num_key_value_heads",
    "--n_embd": "embd n_embed embed_dim emb_dim d_model dim hidden hidden_dim hidden_size width "
                "channels",
    "--block_size": "block context context_length context_size ctx ctx_len n_ctx n_positions "
                    "seq_len seq_length sequence_length max_seq_len max_length",
    "--position": "pos pos_emb position_embedding position_embedding_type",
    "--rotary_base": "rope_theta theta rope_base rope_freq_base",
    "--activation": "act act_fn hidden_act activation_function",
    "--n_inner": "intermediate_size ffn_dim d_ff feed_forward_length",
    "--norm_eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon",
    "--tied": "tie tie_weights tie_word_embeddings",
    "--dropout": "drop",
    "--optimizer": "opt optim",
    "--beta1 and --beta2": "beta betas",
    "--schedule": "scheduler lr_scheduler lr_scheduler_type",
    "--warmup_iters": "warmup warmup_steps num_warmup_steps",
    "--weight_decay": "wd l2",
    "--grad_clip": "clip clip_grad max_grad_norm max_norm",
    "--eval_interval": "eval_every eval_steps eval_freq val_interval",
    "--log_interval": "logging_steps log_every",
    "--checkpoint_interval": "save_steps save_interval save_every",
    "--threads": "num_threads n_threads workers num_workers cpus jobs j",
    "--recipe": "config preset",
    "--start": "prompt prefix text input i p",
    "--start FILE:path": "file input_file f",
    "--text": "prompt prefix input i p file input_file f",
    "--data": "dataset data_dir data_path train_file corpus text input i file input_file f",
    "--out_dir": "output_dir output out o save_dir checkpoint_dir model model_path checkpoint "
                 "ckpt ckpt_path load m",
    "--num_samples or --max_new_tokens": "n",
    "--num_samples": "samples num_return_sequences",
    "--max_new_tokens": "length max_length max_len tokens max_tokens num_tokens n_tokens "
                        "n_predict steps",
    "--temperature": "temp t",
    "--top_k or --top_p": "top",
    "--top_k": "k",
    "--top_p": "p nucleus",
}
# Answers to names for which a command has no flag.
NO_FLAG = {
    "everything is computed on the processor (CPU); leave it out":
        "device devices gpu gpus cuda cpu mps no_cuda use_cpu backend ddp",
    "numbers have 32 bits; leave it out":
        "dtype precision fp16 bf16 fp32 float16 bfloat16 amp half",
    "kernels are always compiled; leave it out": "compile jit",
    "a run keeps its losses in log.csv; leave it out":
        "wandb wandb_log wandb_project wandb_run_name tensorboard report_to",
    "it is python -m model.sample that writes text, going on from its --start":
        "prompt start generate sample samples num_samples max_new_tokens length temperature temp "
        "top_k top_p interactive",
}


class Parser(argparse.ArgumentParser):
    """A command-line parser with a flag for every field of a dataclass, with underscores or
    hyphens; one of the type Words takes several.  An unknown flag is answered with the nearest
    known one.  The defaults that --help shows are those of the dataclass, or of an instance of
    it."""

    def __init__(self, command: str, description: str, settings: object) -> None:
        super().__init__(prog=command.split()[-1], description=description, allow_abbrev=False,
                         usage=f"{command} [--flag value ...]   (--help lists them all)",
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self.fields = {field.name: field for field in dataclasses.fields(settings)}
        for field in dataclasses.fields(settings):
            spellings = dict.fromkeys((f"--{field.name}", f"--{field.name.replace('_', '-')}"))
            if field.metadata["short"]:
                spellings[field.metadata["short"]] = None
            kind = {"action": argparse.BooleanOptionalAction} if field.type is bool else {}
            if field.metadata["alone"] is not None:
                kind = {"nargs": "?", "const": field.metadata["alone"]}
            if field.type == Words:
                kind = {"nargs": "+"}
            default = getattr(settings, field.name)
            shown = (field.metadata["unset"] if default is None else
                     " ".join(default) if field.type == Words else default)
            help = field.metadata["help"].replace("%", "%%") + (
                f" (default: {shown})" if shown != "" else "")
            self.add_argument(*spellings, dest=field.name, default=argparse.SUPPRESS, help=help,
                              **kind)

    def error(self, message: str) -> None:
        """Say what is wrong, and exit."""
        self.refuse([message])

    def given(self, argv: list[str] | None) -> dict[str, object]:
        """Return the settings on the command line, by name."""
        known, mistakes = self.read(argv)
        self.refuse(mistakes)
        return known

    def read(self, argv: list[str] | None) -> tuple[dict[str, object], list[str]]:
        """Return the settings on the command line, by name, and a line for each mistake."""
        argv, mistakes = self._split(sys.argv[1:] if argv is None else argv)
        found, unknown = self.parse_known_args(argv)
        known = {}
        for name, word in vars(found).items():
            field = self.fields[name]
            flag = f"--{name}" if f"--{name}" in self._option_string_actions else name
            try:
                known[name] = field.type(word)
            except ValueError:
                mistakes.append(f"{flag} {of_another_type(field.type, word)}")
            else:
                if said := problem(field, known[name]):
                    mistakes.append(f"{flag} {said}")
        flags = [word.split("=")[0] for word in unknown if word.startswith("-")]
        for word in flags:
            mistakes.append(f"there is no flag {word}; {self._instead_of(word)}")
        if not flags:               # the words may belong to it
            mistakes += [f"no flag stands before {word!r}, or one that takes nothing; see --help"
                         for word in unknown]
        return known, mistakes

    def _instead_of(self, word):
        """Return what to do about an unknown flag."""
        options = self._option_string_actions
        name = _name(word)
        by_name = {_name(option): option for option in reversed(options)}
        meant = [flags for flags, names in OTHER_NAMES.items() if name in names.split()
                 and all(flag in options for flag in flags.split() if flag.startswith("--"))]
        said = [say for say, names in NO_FLAG.items() if name in names.split()]
        if not meant and not said:
            meant = [by_name[near] for near in difflib.get_close_matches(name, by_name, 1, ALIKE)]
        return f"did you mean {meant[0]}?" if meant else (said or ["see --help"])[0]

    def _split(self, argv):
        """Return the words that argparse can read, and a line for each that it would refuse before
        it has read the others."""
        words, mistakes = [], []
        for word, following in itertools.zip_longest(argv, argv[1:]):
            name, equals, value = word.partition("=")
            action = self._option_string_actions.get(name)
            if equals and isinstance(action, argparse.BooleanOptionalAction):
                mistakes.append(f"--{action.dest} is on or off, and takes no value such as "
                                f"{value!r}; write --{action.dest} or --no-{action.dest}")
            elif action and value == "--":
                mistakes.append(f"--{action.dest} takes a value, not '--'")
            elif (action and not equals and action.nargs in (None, "+")
                  and (following is None or self._parse_optional(following))):
                mistakes.append(f"{name} takes a value, and none was given; one that begins with a "
                                f"hyphen follows an equals sign, as in {name}=-value")
            else:
                words.append(word)
        return words, mistakes

    def refuse(self, mistakes: list[str]) -> None:
        """Print each different mistake in a line, and exit; do nothing if there is none."""
        if mistakes:
            self.exit(2, "".join(f"{self.prog}: error: {in_a_line(mistake)}\n"
                                 for mistake in dict.fromkeys(mistakes)))


def _name(option):
    """Return the name of a flag as it is typed."""
    return option.lstrip("-").replace("-", "_").lower()


@contextlib.contextmanager
def answering(command: str, unread: int = 1) -> Iterator[None]:
    """Answer an error of a command in a line on standard error, and exit; with the status `unread`
    if nobody reads the output."""
    try:
        startup.main_begins()
        yield
    except ValueError as error:         # all of them say what is wrong and what to do
        sys.exit(f"{command}: {in_a_line(error)}")
    except MemoryError as error:
        sys.exit(f"{command}: there is not enough memory ({in_a_line(error)}); end other programs, "
                 "or take a smaller model or text")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(unread)
    except OSError as error:
        what = f"use {error.filename}" if error.filename else "write what it has to say"
        sys.exit(in_a_line(f"{command}: cannot {what}: {error.strerror or error}; name another "
                           "file"))
    except KeyboardInterrupt:
        sys.exit(130)


def text_or_file(value: str) -> str:
    """Return the text itself, or the contents of the file that FILE:path names."""
    if not value.startswith("FILE:"):
        return value
    return read_text(os.path.abspath(os.path.expanduser(value.removeprefix("FILE:"))))


def prepare_output() -> None:
    """Make standard output usable where the terminal lacks a character, and it and standard error
    where whoever started the program has closed them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    sys.stdout.reconfigure(errors="replace")
