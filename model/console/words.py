"""Numbers, lists and messages in words."""

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
