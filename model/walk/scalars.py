"""How exercise 0 is judged: programs run on a class of scalars, and on the engine's Tensors."""
import functools
import itertools
import sys
from collections.abc import Callable

import numpy as np

import minigrad as mg

ENGINE = functools.partial(mg.Tensor, requires_grad=True)
CHECKED = "programs, and the gradients by a, b and c, against minigrad's"
MOST = 100_000      # calls and returns in a program; a good class needs about a thousand


def run(Value: Callable, program: str, *leaves: float) -> tuple:
    """Run a program on a class of scalars.  Return what an Outcome holds: the arguments; what was
    raised or None; the value and the gradients by a, b and c, each a number or that."""
    names = {"Value": Value}
    numbers = {}
    raised = None
    calls = itertools.count()
    given = dict(zip(["program", *"abc"], [program, *leaves]))
    statements = program.split("; ")
    passes = [statement for statement in statements if "backward" in statement]
    made = statements[:-len(passes)]
    if Value is ENGINE:                     # its backward frees the graph, and adds to gradients
        passes = passes[-1:]

    def count(*event):
        if next(calls) > MOST:
            raise RecursionError(f"more than {MOST // 2:,} functions are called")

    def number(name, of):
        x = getattr(names[name], of)
        x = np.asarray(0.0 if x is None else x)         # no gradient has come there
        if x.shape or x.dtype.kind not in "if":
            raise TypeError(f"{name}.{of} is not a number")
        return [x.astype(float)]
    sys.setprofile(count)
    try:
        names |= {name: Value(x) for name, x in zip("abc", leaves)}
        exec("\n".join(made), names)
        if not isinstance(names["y"], type(names["a"])):
            raise TypeError(f"y is {type(names['y']).__name__}, and should be a Value")
        numbers["value"] = number("y", "data")
        exec("\n".join(passes), names)
        numbers |= {name: number(name, "grad") for name in "abc"}
    except BaseException as error:
        raised = error
        numbers = dict.fromkeys(["value", *"abc"], error) | numbers
    finally:
        sys.setprofile(None)
    return given, raised, numbers


def three_ways(given: dict, _, numbers: dict) -> list[str]:
    """Return paragraphs that show the last program, the GELU by tanh, by a student's scalars, by
    the engine's ops on an array, and by its kernel.  Raise ArithmeticError if they differ."""
    program, _, _, c = given.values()
    x = np.array([-2.0, -1.0, c, 1.0])
    names = {"Value": ENGINE, "c": ENGINE(x)}
    kernel = ENGINE(x)
    exec(program.replace("y.backward()", "y.sum().backward()"), names)
    y = mg.gelu(kernel, "tanh")
    y.sum().backward()
    rows = [("your Values", numbers["value"][0], numbers["c"][0]),
            ("minigrad, this program on an array", names["y"].data[2], names["c"].grad[2]),
            (f"minigrad, {'a compiled kernel' if mg.COMPILED else 'mg.gelu without a kernel'}",
             y.data[2], kernel.grad[2])]
    apart = np.ptp([row[1:] for row in rows], axis=0).max()
    if not apart < 1e-6:
        raise ArithmeticError(f"three ways to the GELU are {apart} apart")
    lines = [f"    {way:36}{value:.14f}  {slope:.14f}" for way, value, slope in rows]
    return ["\n".join([f"The last program is the GELU by tanh, from GPT-2.  At c = {c}:",
                       f"    {'':36}{'value':18}gradient", *lines]),
            f"They differ by at most {apart:.1g}."]
