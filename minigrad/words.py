"""Words of messages: counts with their nouns, lists, and values in one line.

Everything else may use this; it needs only the standard library.
"""
from collections.abc import Sequence

OF_VALUE, OF_ERROR = 80, 200    # characters of a value, or of an error, that a message shows


def number_of(n: float, what: str) -> str:
    """Return a count with its noun, as "1 layer" or "2,000 layers"."""
    plural = what if n == 1 else f"{what}s"
    return f"{n:,}".removesuffix(".0") + f" {plural}"


def scaled(n: float, unit: str) -> str:
    """Return a number with four digits and one of the prefixes k, M, G, T, P."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if n < 999.95 or prefix == "P":
            return f"{n:#.4g} {prefix}{unit}".rstrip()
        n /= 1000


def any_of(words: Sequence[str]) -> str:
    """Return words as "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def first_of(words: Sequence[str], most: int = 5) -> str:
    """Return words as "a, b and 1,000 more"."""
    first = ", ".join(words[:most])
    more = len(words) - most
    return f"{first} and {more:,} more" if more > 0 else first


def in_a_line(message: object) -> str:
    """Return a message with line breaks and other control characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(message))


def shown(value: object) -> str:
    """Return a value from a file, or an error, in one short line for a message."""
    longest = OF_ERROR if isinstance(value, Exception) else OF_VALUE
    text = str(value) if isinstance(value, str | Exception) else repr(value)
    line = in_a_line(text[:longest + 1])
    return line if len(line) <= longest else f"{line[:longest]}..."
