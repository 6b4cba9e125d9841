"""Options: dataclass fields that say their default, their help and what they can be."""
import dataclasses
import difflib
import math
import numbers
import operator
import sys
from collections.abc import Sequence

from model.console.words import any_of, shown

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
