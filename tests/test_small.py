"""docs/small.md: its programs run as they stand, and end where the same programs on PyTorch end."""
import contextlib
import importlib
import io
import re

import numpy as np
import pytest

import minigrad as mg
from tests.kit import ROOT

pytestmark = pytest.mark.late
PAGE = (ROOT / "docs" / "small.md").read_text(encoding="utf-8")
_, *PARTS = re.split(r"^```(.*)\n", PAGE, flags=re.M)       # language, block, "", prose, ...
BLOCKS = list(zip(PARTS[::4], PARTS[1::4]))
SHOWN = [block for language, block in BLOCKS if not language]
PROGRAMS = dict(zip(["curve", "digits", "convolution", "adder", "plane"],
                    [block for language, block in BLOCKS if language == "python"]))
NUMBER = r"\d+(?:\.\d+)?"


def run(program):
    """What a program prints, and its names at its end."""
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, names)
    return out.getvalue(), names


def test_each_program_has_at_most_30_lines_and_there_are_five():
    assert len(SHOWN) == len(PROGRAMS) == 5
    for program in PROGRAMS.values():
        assert len(program.splitlines()) <= 30


@pytest.mark.parametrize("program, shown", list(zip(PROGRAMS.values(), SHOWN)),
                         ids=PROGRAMS)
def test_each_program_prints_what_the_page_shows(program, shown):
    """To a hundredth in its last line, and but for a few lines of a picture: its last bits are
    those of a processor."""
    printed, _ = run(program)
    *picture, last = [line.rstrip() for line in printed.strip("\n").splitlines()]
    *expected, words = shown.strip("\n").splitlines()
    assert re.sub(NUMBER, "", last) == re.sub(NUMBER, "", words)
    assert np.allclose([float(n) for n in re.findall(NUMBER, last)],
                       [float(n) for n in re.findall(NUMBER, words)], rtol=0.01)
    same = [a == b for a, b in zip(picture, expected, strict=True)]
    assert sum(same) >= 0.8 * len(same)


# The same programs on PyTorch: a module, and a function that gives the loss of the next step.

def curve(torch, names):
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    x, y = (torch.tensor(names[name]) for name in "xy")
    return model, lambda: torch.nn.functional.mse_loss(model(x), y)


def digits(torch, names):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))

    def loss():
        images, labels = map(torch.tensor, names["digits"](100))
        return torch.nn.functional.cross_entropy(model(images.flatten(1)), labels)
    return model, loss


def convolution(torch, names):
    """By PyTorch's own convolutions; each weight (outputs, h w C) becomes (outputs, C, h, w)."""
    F = torch.nn.functional
    first, second, last = layers = torch.nn.ModuleList(
        [torch.nn.Linear(4, 16), torch.nn.Linear(128, 32), torch.nn.Linear(32, 10)])

    def convolved(x, layer, h, w):
        kernel = layer.weight.reshape(len(layer.weight), h, w, -1).permute(0, 3, 1, 2)
        return torch.relu(F.conv2d(x, kernel, layer.bias))

    def loss():
        images, labels = map(torch.tensor, names["digits"](100))
        x = convolved(images.permute(0, 3, 1, 2), first, 2, 2)
        return F.cross_entropy(last(convolved(x, second, 4, 2).amax(dim=(2, 3))), labels)
    return layers, loss


def adder(torch, names):
    """By PyTorch's own RNN, which has a weight for the input and one for the state."""
    step, output = layers = torch.nn.ModuleList([torch.nn.Linear(18, 16), torch.nn.Linear(16, 2)])
    zeros = torch.zeros(1, 100, 16, dtype=torch.float64)

    def loss():
        pairs = names["rng"].integers(64, size=(100, 2))
        bits, targets = (torch.tensor(names["in_bits"](n, 7)) for n in (pairs, pairs.sum(axis=1)))
        weights = [step.weight[:, :2], step.weight[:, 2:], step.bias, zeros[0, 0]]
        states, _ = torch.rnn_tanh(bits.double(), zeros, weights, True, 1, 0.0, False, False, True)
        return torch.nn.functional.cross_entropy(output(states).flatten(0, 1), targets.flatten())
    return layers, loss


def plane(torch, names):
    nn = torch.nn
    encoder = nn.Sequential(nn.Linear(15, 64), nn.Tanh(), nn.Linear(64, 4))
    decoder = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 15))
    standard = torch.distributions.Normal(0, 1)

    def loss():
        x = torch.tensor(names["GLYPHS"][names["rng"].integers(10, size=100)]).flatten(1).double()
        mean, log_var = encoder(x).chunk(2, dim=-1)
        place = torch.distributions.Normal(mean, torch.exp(log_var / 2))
        z = mean + place.scale * torch.tensor(names["rng"].standard_normal((100, 2)))
        surprise = nn.functional.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum")
        return (surprise + torch.distributions.kl_divergence(place, standard).sum()) / 100
    return nn.ModuleList([encoder, decoder]), loss


@pytest.mark.needs("interop")
@pytest.mark.parametrize("twin", [curve, digits, convolution, adder, plane])
def test_each_program_ends_with_the_weights_of_the_same_on_pytorch(twin, monkeypatch):
    """Both from the same weights, in float64, after 40 steps."""
    torch = importlib.import_module("torch")
    steps = 40
    begun = []

    class Double(mg.AdamW):
        def __init__(self, parameters, **settings):
            for p in parameters:
                p.__init__(p.data.astype(np.float64), requires_grad=True)
                begun.append(p.data.copy())
            super().__init__(parameters, **settings)
    monkeypatch.setattr(mg, "AdamW", Double)
    program, count = re.subn(r"in range\(\d{3}\):", f"in range({steps}):", PROGRAMS[twin.__name__])
    _, names = run(program)
    assert count == 1
    names["rng"] = np.random.default_rng(0)         # to draw the same again
    module, next_loss = twin(torch, names)
    module.double()
    with torch.no_grad():
        for p, array in zip(module.parameters(), begun, strict=True):
            p.copy_(torch.tensor(array))
    group, = names["optimizer"].param_groups
    optimizer = torch.optim.AdamW(module.parameters(), lr=group["lr"])
    for _ in range(steps):
        loss = next_loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    worst = 0
    for p, expected in zip(group["params"], module.parameters(), strict=True):
        worst = max(worst, abs(p.data - expected.detach().numpy()).max())
    assert worst < 1e-12
