"""A pickle read as plain data: nothing that it names is imported, and nothing is called.

A pickle is a program for a small machine with a stack.  Python's own reader of pickles runs it, and
it can have any function of any module called.  This machine has no means to: where Python's calls
a function, it notes the function's name and the arguments in a Call.  Whoever reads the result
decides what that means.  A name that the caller does not expect, and an instruction that plain data
do not need, end the reading.

Source: the instructions as the standard library's pickletools describes them.
"""
import pickletools
from collections.abc import Container
from dataclasses import dataclass

from model.command import shown
from model.convert.found import FormatError

LARGEST = 1 << 21       # bytes of a pickle; what it makes is at most some 80 times larger
ORDERED_DICT = "collections.OrderedDict"
MADE = {"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
        "EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
STATED = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
          "SHORT_BINBYTES")


@dataclass(frozen=True, slots=True)
class Name:
    """What a pickle calls, as "module.name"."""
    full: str


@dataclass(frozen=True, slots=True)
class Call:
    """What a pickle would have had called."""
    name: str
    arguments: tuple


@dataclass(frozen=True, slots=True)
class Persistent:
    """What a pickle keeps elsewhere, by the key that it has there."""
    key: object


def unpickled(content: bytes, names: Container[str]) -> object:
    """Return what is in a pickle: None, numbers, texts, bytes, tuples, lists and dicts, with each
    Call and Persistent among them as it is.  The keys of dicts are texts and whole numbers.

    Parameters
    ----------
    names : what the pickle may call, as "module.name", other than an empty OrderedDict, which
        becomes a dict.

    Raises
    ------
    FormatError : it names something else, which the message says, or is damaged, or too large.
    """
    if len(content) > LARGEST:
        raise FormatError(f"its pickle has {len(content):,} bytes, and {LARGEST:,} are read")
    try:
        return _run(content, names)
    except FormatError:
        raise
    # of the machine, which has found another thing than the instruction needs, or nothing
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise FormatError("its pickle is damaged") from error


def _run(content, names):
    """Run a pickle on a machine of a stack, marks in it, and a memory."""
    stack, marks, memory = [], [], {}

    def above_mark():
        start = marks.pop()
        found = stack[start:]
        del stack[start:]
        return found

    def named(full):
        if full not in names and full != ORDERED_DICT:
            raise FormatError(f"its pickle wants {shown(full)}, which is not among the few names "
                              "that tensors need")
        stack.append(Name(full))

    for instruction, argument, _ in pickletools.genops(content):
        match instruction.name:
            case "PROTO" | "FRAME":
                pass
            case name if name in MADE:
                stack.append(MADE[name]())
            case name if name in STATED:
                stack.append(argument)
            case "MARK":
                marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(above_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                marks.append(len(stack) - int(name[-1]))
                stack.append(tuple(above_mark()))
            case "APPEND":
                _extend(stack[-2], [stack.pop()])
            case "APPENDS":
                items = above_mark()
                _extend(stack[-1], items)
            case "SETITEM":
                marks.append(len(stack) - 2)
                items = above_mark()
                _set(stack[-1], items)
            case "SETITEMS":
                items = above_mark()
                _set(stack[-1], items)
            case "BINPUT" | "LONG_BINPUT":
                memory[argument] = stack[-1]
            case "MEMOIZE":
                memory[len(memory)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memory[argument])
            case "GLOBAL":
                named(argument.replace(" ", ".", 1))
            case "STACK_GLOBAL":
                name, module = stack.pop(), stack.pop()
                named(module + "." + name)
            case "REDUCE":
                arguments, callee = stack.pop(), stack.pop()
                if type(arguments) is not tuple:
                    raise TypeError
                empty = callee.full == ORDERED_DICT and not arguments
                stack.append({} if empty else Call(callee.full, arguments))
            case "BUILD":       # attributes: of an OrderedDict, the versions of a model's modules
                stack.pop()
            case "BINPERSID":
                stack.append(Persistent(stack.pop()))
            case "STOP":
                return stack.pop()
            case name:
                what = f" of {shown(argument)}" if type(argument) is str else ""
                raise FormatError(f"its pickle holds the instruction {name}{what}, which tensors "
                                  "do not need")


def _extend(found, items):
    if type(found) is not list:
        raise TypeError
    found += items


def _set(found, items):
    """Set the items of a dict, keys and values in turn."""
    if type(found) is not dict or not all(
            type(key) is str or type(key) is int and key.bit_length() < 32 for key in items[::2]):
        raise TypeError     # others can be made to take for ever to hash, or to have one hash
    found.update(zip(items[::2], items[1::2], strict=True))
