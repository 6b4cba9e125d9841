"""Options: fields of a dataclass, each with its default, its help and its check."""
import dataclasses
import difflib
import math
import numbers
import operator
import sys
from collections.abc import Sequence

from minigrad.words import any_of, shown

Words = tuple[str, ...]
Values = dict[str, object]      # of settings, by name
KINDS = {bool: (bool, "True or False"), int: (numbers.Integral, "a whole number"),
         float: (numbers.Real, "a number"), str: (str, "a text"), Words: (tuple, "texts")}
BOUNDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le,
          "below": operator.lt}


def flag(default: object, help: str, *, unset: str = "", alone: object = None, short: str = "",
         choices: Sequence[str] = (), finite: bool = True, **bounds: float) -> dataclasses.Field:
    """Return a dataclass field for a setting: its default, its help text, and its check.

    `unset` says what a default of None stands for.  `alone` is the value of a flag that is given
    without one; `short` another spelling, such as -o.  A text is one of `choices`, and empty only
    as a default or `alone`.  A number is finite, if `finite`, and within the bounds in BOUNDS.
    """
    return dataclasses.field(default=default, metadata=dict(
        help=help,
        unset=unset,
        alone=alone,
        short=short,
        choices=choices,
        finite=finite,
        bounds=bounds))


def problems(settings: object) -> list[str]:
    """Return a line for each setting of a dataclass that has an impossible value."""
    lines = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        unset = value is field.default is None
        if not unset and (line := problem(field, value)):
            lines.append(f"{field.name} {line}")
    return lines


def option_names(table: object) -> Words:
    """Return the names of the settings of a dataclass."""
    return tuple(field.name for field in dataclasses.fields(table))


def problem(field: dataclasses.Field, value: object) -> str | None:
    """Return what a setting should be instead of this value; None if the value is possible."""
    choices = field.metadata["choices"]
    bounds = field.metadata["bounds"]
    texts = value if field.type == Words else (value,)
    if not _has_type(field.type, value):
        return takes(field.type, value)
    if choices and value not in choices:
        line = f"is {any_of(choices)}, not {shown(value) if value.strip() else repr(value)}"
        for near in difflib.get_close_matches(value, choices, n=1):
            line += f"; did you mean {near}?"
        return line
    if "" in texts and "" not in (field.default, field.metadata["alone"]):
        return "takes a value, and an empty one was given"
    if not all(BOUNDS[name](value, bound) for name, bound in bounds.items()):
        limits = [f"{name.replace('_', ' ')} {bound}" for name, bound in bounds.items()]
        return f"is {' and '.join(limits)}, not {shown(str(value))}"
    if field.metadata["finite"] and value == math.inf:
        return f"is a finite number, not {shown(str(value))}"


def _has_type(type, value):
    if type is float and isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    return isinstance(value, KINDS[type][0]) and isinstance(value, bool) == (type is bool)


def takes(type, value):
    return f"takes {KINDS[type][1]}, not {shown(repr(value))}"


def as_flags(values: Values) -> list[str]:
    """Return settings as flags, except those that are None."""
    flags = []
    for name, value in values.items():
        if isinstance(value, bool):
            flags.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            flags.append(f"--{name} {str(value).removesuffix('.0')}")
    return flags
