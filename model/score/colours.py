"""A text on a terminal, each letter in a colour that says how little the model expected it.

The colours are those of the page (`ramp` in model/look/static/elements.js): orange, from pale to
dark in even steps of lightness, in the space Oklch  (Ottosson 2020, "A perceptual color space for
image processing").
"""
import math
import os
from collections.abc import Mapping, Sequence
from typing import TextIO

import numpy as np

MOST = 2000         # characters that are shown
LIGHTEST, DARKEST = 0.965, 0.34
HUE = math.radians(50)
# From the cube roots of cones' answers, and to linear red, green and blue; of Oklab
TO_CONES = np.array([[1, 0.3963377774, 0.2158037573],
                     [1, -0.1055613458, -0.0638541728],
                     [1, -0.0894841775, -1.2914855480]])
TO_RGB = np.array([[4.0767416621, -3.3077115913, 0.2309699292],
                   [-1.2684380046, 2.6097574011, -0.3413193965],
                   [-0.0041960863, -0.7034186147, 1.7076147010]])
LEVELS = np.array([0, 95, 135, 175, 215, 255])      # of red, green and blue, among 256 colours
RESET = "\x1b[0m"


def depth_of(stream: TextIO, environment: Mapping[str, str] = os.environ) -> int:
    """Return the bits of a colour that a stream shows: 24, 8, or 0 for none, as in a pipe, where
    NO_COLOR is set, or in a dumb terminal."""
    if not stream.isatty() or environment.get("NO_COLOR"):
        return 0
    if environment.get("TERM") == "dumb":       # in Emacs: COLORTERM is of the terminal around it
        return 0
    if environment.get("COLORTERM") in ("truecolor", "24bit") or "WT_SESSION" in environment:
        return 24
    return 8 if "256color" in environment.get("TERM", "") else 0


def coloured(pieces: Sequence[str], shares: Sequence[float], depth: int) -> str:
    """Return a text in pieces with a colour for each: 0 is the palest, and 1 the darkest."""
    parts = []
    for piece, share in zip(pieces, shares):
        red, green, blue = orange(share)
        if depth == 24:
            ground = f"48;2;{red};{green};{blue}"
        else:
            r, g, b = (int(abs(LEVELS - part).argmin()) for part in (red, green, blue))
            ground = f"48;5;{16 + 36 * r + 6 * g + b}"
        ink = 30 if brightness(red, green, blue) > 0.179 else 97        # black or white
        on = f"\x1b[{ground};{ink}m"
        lines = [line and f"{on}{visible(line)}{RESET}" for line in piece.split("\n")]
        parts.append(f"{on} {RESET}\n".join(lines))         # a line break shows as a space
    return "".join(parts)


def visible(text: str) -> str:
    """Return a text in which no character can move the terminal's cursor or hide itself."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text.expandtabs(4))


def orange(share: float) -> tuple[int, int, int]:
    """Return red, green and blue, each up to 255, of a share of all darkness, 0 to 1."""
    lightness = LIGHTEST + (DARKEST - LIGHTEST) * share
    chroma = 0.165 * math.sin(math.pi * (0.05 + 0.75 * share))
    cones = TO_CONES @ [lightness, chroma * math.cos(HUE), chroma * math.sin(HUE)]
    linear = np.clip(TO_RGB @ cones ** 3, 0, 1)
    gamma = np.where(linear > 0.0031308, 1.055 * linear ** (1 / 2.4) - 0.055, 12.92 * linear)
    return tuple(int(part) for part in np.rint(255 * gamma))


def brightness(*colour: int) -> float:
    """Return the relative luminance of red, green and blue, 0 to 1."""
    red, green, blue = ((part / 255) ** 2.2 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
