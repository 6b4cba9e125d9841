"""What each station shows: its tables, by title, and its texts."""
import pytest

from model.walk.station import Question, Table
from model.walk.stations import STATIONS

EACH = pytest.mark.parametrize("n", range(1, len(STATIONS) + 1))


def tables(n):
    return {part.title: part for part in STATIONS[n - 1].parts() if isinstance(part, Table)}


def values(n, title):
    return tables(n)[title].values


def texts(n):
    """Every text of a station, with that of its question and its answer."""
    for part in STATIONS[n - 1].parts():
        if not isinstance(part, Table):
            yield from part if isinstance(part, Question) else [part]
