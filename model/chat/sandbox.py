"""Jinja, as chat templates use it, in a sandbox: a template comes from a file of somebody else.

What a template may call besides Jinja is what transformers lets it call: `raise_exception`,
`strftime_now`, `tojson`, and the statements break, continue and generation.
"""
import contextlib
import datetime
import json
import sys
from collections.abc import Iterator

from model.convert.model_file import require

MOST_LINES = 1_000_000      # that a template may run; that of Llama 3 runs some 200
MOST_ITEMS = 1_000_000      # of a text or list that `*` makes
MOST_POWER = 64             # an exponent of `**`


class CannotRender(ValueError):
    """A template refuses a conversation, or asks for too much."""


def environment():
    """Return the environment in which transformers renders chat templates.

    Raises
    ------
    MissingLibrary : jinja2 is not installed.
    """
    require("jinja2", "gguf", "this model's chat template is written in Jinja")
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} ... {% endgeneration %}: marks what the model wrote; changes nothing."""
        tags = {"generation"}

        def parse(self, parser):
            """Return the statements in between, with variables of their own."""
            lineno = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=lineno)

    class Sandbox(ImmutableSandboxedEnvironment):
        """No template reaches a file, or takes all memory."""
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context, operator, left, right):
            """Return left * right or left ** right, unless that is too large."""
            _check_size(operator, left, right)
            return super().call_binop(context, operator, left, right)

    jinja = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    jinja.filters["tojson"] = _as_json
    jinja.globals["raise_exception"] = _refuse
    jinja.globals["strftime_now"] = _now
    return jinja


def _check_size(operator, left, right):
    """Refuse left * right or left ** right if it is too large."""
    if operator == "**" and right > MOST_POWER:
        raise CannotRender(f"it takes a power of {right}")
    if operator == "*":
        for items, count in ((left, right), (right, left)):
            if hasattr(items, "__len__") and len(items) * count > MOST_ITEMS:
                raise CannotRender(f"it repeats {len(items)} items {count} times")


def _as_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """Return JSON; Jinja's own filter escapes the signs of HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys)


def _refuse(message):
    """Let a template refuse a conversation."""
    raise CannotRender(message)


def _now(format):
    """Return the time of day, by strftime's format."""
    return datetime.datetime.now().strftime(format)


@contextlib.contextmanager
def at_most(lines: int) -> Iterator[None]:
    """Raise CannotRender when Python has run so many lines."""
    remaining = lines

    def count(frame, event, argument):
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise CannotRender("it does not end")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)
