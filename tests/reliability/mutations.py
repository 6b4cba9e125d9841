"""Bytes spoilt at random, as disks, networks and careless hands spoil them; and fields of a zip."""
import random
import re

MOST = 8                # changes at a time
SIGNATURES = re.compile(rb"PK[\x01-\x07]{2}|\x93NUMPY")
FIELD = 46              # bytes from a signature on, in which the fields are
TELLING = (0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 10 ** 12,
           2 ** 63 - 1, 2 ** 64 - 1)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """The same with one to so many changes; never the same."""
    spoilt = bytearray(content)
    while spoilt == content:
        for _ in range(draw.randint(1, MOST)):
            draw.choice(CHANGES)(spoilt, draw)
    return bytes(spoilt)


def _flip(spoilt, draw):
    """One bit."""
    if spoilt:
        spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)


def _overwrite(spoilt, draw):
    """A stretch with zeros, or with anything."""
    start, end = _stretch(spoilt, draw)
    spoilt[start:end] = bytes(end - start) if draw.random() < 0.5 else draw.randbytes(end - start)


def _number(spoilt, draw):
    """A number that code may not expect, somewhere."""
    _put(spoilt, draw.randint(0, len(spoilt)), draw)


def _field(spoilt, draw):
    """The same in the fields of an archive."""
    if places := [found.end() for found in SIGNATURES.finditer(spoilt)]:
        _put(spoilt, draw.choice(places) + draw.randrange(FIELD), draw)


def _put(spoilt, at, draw):
    size = draw.choice((1, 2, 4, 8))
    number = draw.choice(TELLING) % 256 ** size
    spoilt[at:at + size] = number.to_bytes(size, "little")


def _remove(spoilt, draw):
    start, end = _stretch(spoilt, draw)
    del spoilt[start:end]


def _repeat(spoilt, draw):
    """A stretch once more, behind it or anywhere."""
    start, end = _stretch(spoilt, draw)
    at = draw.choice((end, draw.randint(0, len(spoilt))))
    spoilt[at:at] = spoilt[start:end]


def _exchange(spoilt, draw):
    """Two stretches with each other: the order of things."""
    start, end = _stretch(spoilt, draw)
    at = draw.randint(end, len(spoilt))
    spoilt[start:at] = spoilt[end:at] + spoilt[start:end]


def _cut(spoilt, draw):
    """The end off, or the beginning."""
    at = draw.randint(0, len(spoilt))
    del spoilt[draw.choice((slice(at, None), slice(0, at)))]


def _add(spoilt, draw):
    """Something at the end, or anywhere."""
    at = draw.choice((len(spoilt), draw.randint(0, len(spoilt))))
    spoilt[at:at] = draw.randbytes(draw.randint(1, 64))


def _stretch(spoilt, draw):
    start = draw.randint(0, len(spoilt))
    return start, min(len(spoilt), start + draw.randint(0, draw.choice((4, 64, 4096))))


CHANGES = (_flip, _overwrite, _number, _field, _remove, _repeat, _exchange, _cut, _add)
