"""A transformer that learns to write, whole, in plain NumPy: python docs/one.py

Read it from top to bottom; each part says what it is for.  In some three minutes on two
cores it reads twelve plays, learns to guess their next letter, and writes a scene.
"""
from pathlib import Path

import numpy as np

B = 16              # texts that are read at once
T = 64              # letters of each
C = 128             # channels: the numbers by which the model describes a letter
H = 4               # heads of attention,
D = C // H          # with so many channels each
LAYERS = 4
STEPS = 1300
RATE = 0.003        # about how far a weight moves in a step, at its highest
DECAY = 0.1         # what pulls weights back to 0
BETA1 = 0.9         # how much of the gradients' mean AdamW keeps in a step
BETA2 = 0.99        # the same, for the mean of their squares
FLOAT = np.float32

# The text.  A model reads numbers, so each letter gets one: its place in the alphabet.
PLAYS = Path(__file__).parents[1] / "data" / "lantern_plays.txt"
TEXT = PLAYS.read_text("utf-8")
ALPHABET = sorted(set(TEXT))
V = len(ALPHABET)

def encode(text):
    return np.array([ALPHABET.index(letter) for letter in text])

# A Tensor is an array that remembers its sources, each with a vector-Jacobian product, a
# vjp: it turns g, d(loss)/d(this), into d(loss)/d(source).  `backward` goes from a loss
# back through all its sources.  A Tensor's gradient is the sum of what arrives there.
class Tensor:
    grad = 0
    m = 0           # of a weight: the mean of its last gradients,
    v = 0           # and of their squares

    def __init__(self, data, *sources):
        self.data = np.asarray(data, FLOAT)
        self.sources = sources

    def backward(self):
        self.grad = np.ones_like(self.data)
        for tensor in reversed(in_order(self, [])):
            for source, vjp in tensor.sources:
                dx = vjp(tensor.grad)
                while dx.ndim > source.data.ndim:   # NumPy repeated it: add up
                    dx = dx.sum(axis=0)
                source.grad = source.grad + dx

    def __add__(self, other):
        value = self.data + other.data
        return Tensor(value,
                      (self, lambda g: g),
                      (other, lambda g: g))

    def __mul__(self, other):
        a = self.data
        b = other.data
        return Tensor(a * b,
                      (self, lambda g: g * b),
                      (other, lambda g: g * a))

    def __matmul__(self, other):
        a = self.data
        b = other.data
        return Tensor(a @ b,
                      (self, lambda g: g @ turn(b)),
                      (other, lambda g: turn(a) @ g))

    def transpose(self):
        return Tensor(turn(self.data), (self, turn))

def turn(a):
    return a.swapaxes(-1, -2)

# Sources stand before what is made from them: from the end, each gradient is complete.
def in_order(tensor, done):
    for source, _ in tensor.sources:
        if source not in done:
            in_order(source, done)
    done.append(tensor)
    return done

# An embedding looks up a row of numbers for each letter.  Its vjp puts the gradients back
# into these rows.  A row that was read twice gets both.
def embedding(ids, table):
    def dtable(g):
        dx = np.zeros_like(table.data)
        np.add.at(dx, ids, g)
        return dx
    return Tensor(table.data[ids], (table, dtable))

# A norm brings the channels of every letter to the same size, whatever was added to them.
def norm(x):
    mean_square = total(x.data ** 2) / C
    size = np.sqrt(mean_square + 1e-5)
    y = x.data / size
    def dx(g):
        return (g - y * total(g * y) / C) / size
    return Tensor(y, (x, dx))

def total(a):
    return a.sum(axis=-1, keepdims=True)

# Softmax makes probabilities of scores: positive numbers, whose sum is 1.  To take off
# the largest score changes nothing, and e^x cannot overflow.
def softmax(x):
    highest = x.data.max(axis=-1, keepdims=True)
    y = np.exp(x.data - highest)
    y = y / total(y)
    def dx(g):
        return y * (g - total(g * y))
    return Tensor(y, (x, dx))

# The loss is the surprise at the letters that came, -log of their probabilities.  Its
# derivative could not be simpler: what was expected minus what came.
def cross_entropy(scores, targets):
    expected = softmax(scores).data
    came = np.eye(V, dtype=FLOAT)[targets]                  # (B, T, V), 1 at the letter
    p = total(expected * came)
    def dscores(g):
        return g * (expected - came) / targets.size
    return Tensor(-np.log(p).mean(), (scores, dscores))

# Heads look at the text side by side, each with its share of the channels.  To join them
# undoes what it was to split them, so each is the vjp of the other.
def split(a):
    return a.reshape(*a.shape[:2], H, D).swapaxes(1, 2)    # (B, T, C) -> (B, H, T, D)

def join(a):
    a = a.swapaxes(1, 2)
    return a.reshape(*a.shape[:2], C)                          # (B, H, T, D) -> (B, T, C)

def heads(x):
    return Tensor(split(x.data), (x, join))

def joined(x):
    return Tensor(join(x.data), (x, split))

# Attention lets letters look back.  Each asks a query.  Where that fits a letter's key,
# the weight is large, and the letter's value is passed on.  The future, which is to be
# guessed, is hidden: its scores are -inf, and e^-inf is 0.
def attention(x, w):
    query = heads(x @ w["query"])
    key = heads(x @ w["key"])
    value = heads(x @ w["value"])
    length = x.data.shape[1]
    future = np.triu(np.full((length, length), -np.inf), k=1)   # query t, key s > t
    scores = query @ key.transpose() * Tensor(D ** -0.5)
    weights = softmax(scores + Tensor(future))                  # (B, H, T, T)
    return joined(weights @ value) @ w["out"]

# The MLP works on each letter alone, with what attention has brought to it.
def mlp(x, w):
    return relu_squared(x @ w["up"]) @ w["down"]

def relu_squared(x):
    positive = np.maximum(x.data, 0)
    return Tensor(positive ** 2, (x, lambda g: g * 2 * positive))

# The transformer.  Letters and their places become channels.  Each block adds what its
# attention and its MLP find.  The more the result is like a letter's row, the likelier
# that letter is to come next.
def transformer(model, ids):
    places = np.arange(ids.shape[1])
    x = embedding(ids, model["letters"])
    x = x + embedding(places, model["places"])
    for w in model["blocks"]:
        x = x + attention(norm(x), w)
        x = x + mlp(norm(x), w)
    return norm(x) @ model["letters"].transpose()               # (B, T, V)

# Weights begin small and random, and smaller still where a result is added to x.
def new_model(rng):
    small = 0.02 * (2 * LAYERS) ** -0.5
    weights = []
    def matrix(inputs, outputs, size=0.02):
        weights.append(Tensor(rng.normal(0, size, (inputs, outputs))))
        return weights[-1]
    def block():
        return {
            "query": matrix(C, C),
            "key": matrix(C, C),
            "value": matrix(C, C),
            "out": matrix(C, C, small),
            "up": matrix(C, 4 * C),
            "down": matrix(4 * C, C, small),
        }
    return {
        "letters": matrix(V, C),
        "places": matrix(T, C),
        "blocks": [block() for layer in range(LAYERS)],
        "weights": weights,
    }

# AdamW moves weights against the mean of their last gradients, divided by the size of
# these: so all move about as far, and noise, whose mean is small, moves them little.
def adamw(weights, steps, rate):
    for w in weights:
        w.m = BETA1 * w.m + (1 - BETA1) * w.grad
        w.v = BETA2 * w.v + (1 - BETA2) * w.grad ** 2
        mean = w.m / (1 - BETA1 ** steps)                       # as m and v began at 0
        size = np.sqrt(w.v / (1 - BETA2 ** steps)) + 1e-8
        w.data -= rate * (mean / size + DECAY * w.data)
        w.grad = 0

# To train: guess, see how wrong it was, go back for the gradients, and move every weight.
def train(model, ids, rng):
    for step in range(1, STEPS + 1):
        starts = rng.integers(len(ids) - T, size=B)
        loss = loss_on(model, ids, starts)
        loss.backward()
        rate = RATE * min(step / 100, 1 - step / STEPS)     # up soon, then slowly down
        adamw(model["weights"], step, rate)
        print(f"\rstep {step} of {STEPS}   loss {loss.data:.3f}", end="", flush=True)

def loss_on(model, ids, starts):
    places = starts[:, None] + np.arange(T)                 # (B, T)
    scores = transformer(model, ids[places])
    return cross_entropy(scores, ids[places + 1])           # the letters that came next

def validation_loss(model, ids):
    losses = []
    for start in range(0, len(ids) - B * T, B * T):
        starts = start + T * np.arange(B)
        losses.append(loss_on(model, ids, starts).data)
    return np.mean(losses)

# To write: guess the next letter, draw one by the probabilities, append it, and go on.
def write(model, text, length, rng):
    for _ in range(length):
        ids = encode(text[-T:])
        scores = transformer(model, ids[None])
        p = softmax(scores).data[0, -1]
        text += rng.choice(ALPHABET, p=p)
    return text

# The last tenth is held back: only a text that it never read shows what it has learnt.
if __name__ == "__main__":
    rng = np.random.default_rng(0)
    ids = encode(TEXT)
    end = len(ids) * 9 // 10
    model = new_model(rng)
    train(model, ids[:end], rng)
    loss = validation_loss(model, ids[end:])
    print(f"\nloss on the last tenth: {loss:.3f} nats a letter")
    print(write(model, "\n", 500, rng))
