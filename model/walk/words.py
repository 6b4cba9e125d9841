"""What the judge says of numbers and errors that no known mistake explains."""
import pathlib
import re
import textwrap
import traceback

import numpy as np

from minigrad import Tensor
from model.walk.outcomes import Outcome, agree, close, gradient_of, same

TINY = 40           # so many numbers of a case can be shown
ADVICE = {          # for an error with this in its text or in its line
    "read-only": "Others use this array too: make a new one, as in x = x - 1 in place of x -= 1",
    "cannot differentiate":
        "NumPy's functions do not take a Tensor: use mg.exp, mg.softmax and the like",
    r"\bdim(=|')": "PyTorch's dim is axis here, as in axis=-1",
    r"\bkeepdim(=|')": "PyTorch's keepdim is keepdims here",
    r"(int' object is not callable|size is a number).*\.size\(":
        "PyTorch's x.size(-1) is x.shape[-1] here",
    r"\.view\(": "PyTorch's view is reshape here",
    "masked_fill": "PyTorch's masked_fill is mg.where(condition, -math.inf, x) here",
    r"(don't match|out of bounds).*\.transpose\(|'permute'|no permute":
        "PyTorch's x.transpose(1, 2) is x.swapaxes(1, 2) here, and its permute is transpose",
    "unsqueeze": "PyTorch's x.unsqueeze(-1) is x[..., None] here",
    r"'cat'|no cat\b": "PyTorch's cat is mg.concatenate here, and np.concatenate for arrays",
    r"\btorch\b|\bnn\b|'F'": "PyTorch is not used here: Tensors have mg.exp, and arrays np.exp"}


@np.errstate(all="ignore")
def first_difference(answers: list[Outcome], ours: list[Outcome], name: str,
                     path: pathlib.Path) -> str:
    """Return a paragraph on the first number of this name that is wrong."""
    wrong = [(a, b) for a, b in zip(answers, ours) if not agree(a, b, name)]
    a, b = wrong[0]
    case = ", ".join(f"{key} {describe(x)}" for key, x in a.given.items())
    numbers = a.numbers[name]
    what = "The value" if name == "value" else f"The gradient by {name}"
    if isinstance(numbers, BaseException):
        if name != "value":
            what = "A gradient"             # one error is that of all
        return f"{what} cannot be made for {case}: {describe_error(numbers, path)}"
    i, x, y = next((i, x, y) for i, (x, y) in enumerate(zip(numbers, b.numbers[name]), 1)
                   if not same(x, y))
    if len(numbers) > 1:
        what += f" of returned array {i}"
    if x.shape != y.shape:
        return f"{what} has shape {list(x.shape)} for {case}; it should be {list(y.shape)}."
    at = tuple(np.argwhere(~close(x, y))[0].tolist())
    for digits in range(6, 18):             # until the two can be told apart
        shown = [f"{number:.{digits}g}" for number in (x[at], y[at])]
        if shown[0] != shown[1]:
            break
    place = f"at index {at} " if at else ""
    said = f"{what} is wrong for {case}: {place}it is {shown[0]}, and should be {shown[1]}."
    factor = float(x[at] / y[at])
    scaled = [Outcome(*b[:2], {name: [factor * y for y in b.numbers[name]]}) for b in ours]
    if factor and all(agree(a, b, name) for a, b in zip(answers, scaled)):
        said += f"  All of its numbers are {factor:.6g} times what they should be."
    if all(b.numbers["value"][0].dtype == np.float32 for _, b in wrong):
        said += ("  It is right in float64.  The largest float32 is 3.4e38, so exp(89) is infinite "
                 "there, and about 7 digits are kept.")
    if sum(x.size for x in a.given.values() if isinstance(x, np.ndarray)) > TINY:
        return said
    g = {} if name == "value" or a.returned is None else {"g": gradient_of(a.numbers["value"][0])}
    return "\n".join([textwrap.fill(said, 80), *(
        f"    {key} = {np.array2string(np.asarray(x), precision=4, prefix=' ' * (len(key) + 7))}"
        for key, x in (a.given | g | {"yours": x, "right": y}).items())])


def describe(x: object) -> str:
    """Return the type and shape of an array or Tensor, a number or text itself, the parts of a
    tuple, or the type of anything else."""
    if isinstance(x, tuple):
        return shorten(f"({', '.join(map(describe, x))})")
    if isinstance(x, (np.ndarray, Tensor)):
        kind = "Tensor of " if isinstance(x, Tensor) else ""
        return f"{kind}{x.dtype}{list(x.shape)}"
    if isinstance(x, (int, float, str, type(None))):
        return shorten(repr(x))
    return shorten(type(x).__name__)


def describe_error(error: BaseException, path: pathlib.Path) -> str:
    """Return an error in one line: its place in the student's file, its type and its text."""
    place = ""
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = pathlib.Path(frame.filename)
        if file.parent == path.parent:
            line = frame.line
            of = "" if file == path else f" of {file.name}"
            place = f"line {frame.lineno}{of}: {shorten(line)}  ->  "
    try:
        said = str(error) or "it says no more"
    except BaseException:
        said = "its text cannot be made"
    advice = next((f".  {advice}" for habit, advice in ADVICE.items()
                   if re.search(habit, f"{said} {line}", re.DOTALL)), "")
    return f"{place}{shorten(type(error).__name__)}: {' '.join(shorten(said).split())}{advice}"


def shorten(text: str, most: int = 300) -> str:
    """Return the beginning of a text that may be of any length."""
    return text if len(text) <= most else f"{text[:most]} ..."
