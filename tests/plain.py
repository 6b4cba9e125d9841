"""The formulas in plain NumPy, without kernels: `plain.softmax(x)` runs in a world without them."""
import pytest

from minigrad import formulas, plug, random


def use(monkeypatch):
    """Compute every formula in plain NumPy."""
    for formula in plug.FORMULAS:
        monkeypatch.setattr(formula, "kernel", None)


@pytest.fixture(params=["as they run here", "plain NumPy"])
def by_every_way(request, monkeypatch):
    """Compute by the kernels that run here, and then by the formulas, as where Numba does not
    compile."""
    if request.param == "plain NumPy":
        use(monkeypatch)


def __getattr__(name):
    """Return a formula that is computed, with all that it calls, in plain NumPy."""
    if name.startswith("__"):
        raise AttributeError(name)
    formula = getattr(random if hasattr(random, name) else formulas, name)

    def in_plain_numpy(*args, **settings):
        with pytest.MonkeyPatch.context() as patch:
            use(patch)
            return formula(*args, **settings)
    return in_plain_numpy
