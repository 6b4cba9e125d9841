"""A transformer that learns to write, whole, in plain NumPy: python docs/one.py

It reads plays, learns to guess their next letter, and writes a scene in three minutes.
"""
import os
from pathlib import Path

if __name__ == "__main__":      # two threads would wait for each other, beside others
    os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import numpy as np
except ImportError as error:
    raise SystemExit(f"{error}; activate your environment, or: pip install numpy")

B = 16              # texts that are read at once
T = 64              # letters of each
C = 128             # channels: the numbers by which the model describes a letter
H = 4               # heads of attention,
D = C // H          # with so many channels each
LAYERS = 4          # blocks, each of which improves what the model knows of a letter
STEPS = 1300        # of training
RATE = 0.003        # about how far a step moves a weight, if its gradients agree
DECAY = 0.1         # what pulls weights back to 0
BETA1 = 0.9         # how much of the gradients' mean AdamW keeps in a step
BETA2 = 0.99        # the same, for the mean of their squares
FLOAT = np.float32  # numbers of 32 bits

# The text.  A model reads numbers, so each letter (a space is one, too) gets an id.
PLAYS = Path(__file__).parent / "../data/lantern_plays.txt"
TEXT = PLAYS.read_text("utf-8")
ALPHABET = sorted(set(TEXT))
V = len(ALPHABET)

def encode(text):
    return np.array([ALPHABET.index(letter) for letter in text])

# Two operations on arrays that come again and again.
def turn(a):
    return a.swapaxes(-1, -2)                   # (..., n, m) -> (..., m, n)

def total(a):
    return a.sum(axis=-1, keepdims=True)        # (..., n) -> (..., 1)

# A Tensor is an array that remembers its sources, the Tensors it was made from, each with
# a vjp (vector-Jacobian product).  This makes d(loss)/d(source) of g, d(loss)/d(this): by
# the chain rule, [j] of it is g[i] d(this[i])/d(source[j]), summed over i.
class Tensor:
    grad = 0                            # d(loss)/d(this), once `backward` has been there

    def __init__(self, data, *sources):
        self.data = np.asarray(data, FLOAT)
        self.sources = sources          # pairs: a Tensor, and the vjp for it

    def __add__(self, other):
        return Tensor(self.data + other.data,
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
        return Tensor(a @ b,                            # a[i, j] b[j, k], summed over j
                      (self, lambda g: g @ turn(b)),    # g[i, k] b[j, k], over k
                      (other, lambda g: turn(a) @ g))   # a[i, j] g[i, k], over i

    def transpose(self):
        return Tensor(turn(self.data), (self, turn))

# The way back, from the loss to all that it was made from.  A Tensor's gradient is the
# sum of what arrives from each use of it, and is passed on when all has arrived.  So we
# list every source before what is made from it, and go through the list from its end.
def in_order(tensor, done):
    for source, _ in tensor.sources:
        if source not in done:
            in_order(source, done)
    done.append(tensor)
    return done

def backward(loss):
    loss.grad = np.ones_like(loss.data)
    for tensor in reversed(in_order(loss, [])):
        for source, vjp in tensor.sources:
            arrives = vjp(tensor.grad)
            while arrives.ndim > source.data.ndim:  # NumPy used the source for each
                arrives = arrives.sum(axis=0)       # index of this axis: add up
            source.grad = source.grad + arrives

# An embedding looks up a row of numbers for each letter.  Its vjp puts the gradients back
# into these rows.  A row that was read twice gets both.
def embedding(ids, table):
    def vjp(g):
        rows = np.zeros_like(table.data)
        np.add.at(rows, ids, g)
        return rows
    return Tensor(table.data[ids], (table, vjp))

# A norm divides all channels of a letter by the root of their mean square, the rms.  Then
# their rms is 1, however much was added to them.
def norm(x):
    rms = np.sqrt(total(x.data ** 2) / C + 1e-5)            # (B, T, 1), never 0
    y = x.data / rms
    def vjp(g):     # dy[i]/dx[j] = ((i == j) - y[i] y[j] / C) / rms, as d(rms)/dx[j]
        return (g - y * total(g * y) / C) / rms             # is x[j] / C / rms = y[j] / C
    return Tensor(y, (x, vjp))

# Softmax makes probabilities of scores: positive numbers, whose sum is 1.  To take off
# the largest score changes nothing, and e^score cannot overflow.
def softmax(scores):
    highest = scores.data.max(axis=-1, keepdims=True)
    p = np.exp(scores.data - highest)
    p = p / total(p)
    def vjp(g):     # dp[i]/d(score[j]) = p[j] ((i == j) - p[i]): a higher score takes
        return p * (g - total(g * p))                       # from all others
    return Tensor(p, (scores, vjp))

# The loss is the mean surprise at the letters that came, -log of their probability.  Its
# derivative could not be simpler: what was expected minus what came, over their number.
def cross_entropy(scores, targets):
    expected = softmax(scores).data
    came = np.eye(V, dtype=FLOAT)[targets]      # (B, T, V), 1 at the letter
    surprise = -np.log(total(expected * came))  # = log(sum of e^score) - its own score:
    def vjp(g):                                 # the derivatives are `expected`, `came`
        return g * (expected - came) / targets.size
    return Tensor(surprise.mean(), (scores, vjp))

# Attention lets letters look back.  Each has a query, a key and a value, and gets a mix
# of values: most of those whose key, times its query, is large.  H heads do so, with D
# channels each.  `split` and `join` only reorder: what undoes one is its vjp.
def split(a):
    return a.reshape(len(a), -1, H, D).swapaxes(1, 2)       # (B, T, C) -> (B, H, T, D)

def join(a):
    return a.swapaxes(1, 2).reshape(len(a), -1, C)          # (B, H, T, D) -> (B, T, C)

def heads(x):
    return Tensor(split(x.data), (x, join))

def joined(x):
    return Tensor(join(x.data), (x, split))

# Now the heads look.  The future, which is to be guessed, is hidden: its scores are -inf.
def attention(x, block):
    query = heads(x @ block["query"])
    key = heads(x @ block["key"])
    value = heads(x @ block["value"])
    scale = Tensor(D ** -0.5)       # undoes that a sum of D products grows as √D
    scores = query @ key.transpose() * scale                    # (B, H, T, T)
    future = np.triu(np.full(scores.data.shape[-2:], -np.inf), k=1)  # for later keys
    shares = softmax(scores + Tensor(future))                   # e^-inf is 0: no share
    return joined(shares @ value) @ block["out"]

# The MLP works on each letter alone, with what attention has brought to it.
def relu_squared(x):
    positive = np.maximum(x.data, 0)        # x or 0: d(positive²)/dx is 2 x or 0
    return Tensor(positive ** 2, (x, lambda g: g * 2 * positive))

def mlp(x, block):
    return relu_squared(x @ block["up"]) @ block["down"]

# The transformer.  Letters and their places become channels.  Each block adds what its
# attention and its MLP find.  The more the result is like a letter's row, the likelier
# that letter is to come next.
def transformer(model, ids):
    places = np.arange(ids.shape[1])
    x = embedding(ids, model["letters"])
    x = x + embedding(places, model["places"])                  # (B, T, C)
    for block in model["blocks"]:
        x = x + attention(norm(x), block)
        x = x + mlp(norm(x), block)
    return norm(x) @ model["letters"].transpose()               # (B, T, V)

# Weights begin small and random.  If they were equal, all heads would learn the same.
def new_model(rng):
    weights = []
    def matrix(inputs, outputs):
        weight = Tensor(rng.normal(0, 0.02, (inputs, outputs)))
        weight.m = 0        # for AdamW: the mean of its last gradients,
        weight.v = 0        # and of their squares
        weights.append(weight)
        return weight
    def new_block():
        return {"query": matrix(C, C), "key": matrix(C, C), "value": matrix(C, C),
                "out": matrix(C, C),
                "up": matrix(C, 4 * C), "down": matrix(4 * C, C)}
    return {
        "letters": matrix(V, C),
        "places": matrix(T, C),
        "blocks": [new_block() for _ in range(LAYERS)],
        "weights": weights,
    }

# AdamW moves each weight against the mean of its last gradients, divided by their rms: by
# the whole rate if they agree, by a quarter of it if they are noise, however large.
def adamw(weights, step, rate):
    for weight in weights:
        weight.m = BETA1 * weight.m + (1 - BETA1) * weight.grad
        weight.v = BETA2 * weight.v + (1 - BETA2) * weight.grad ** 2
        mean = weight.m / (1 - BETA1 ** step)       # m and v began at 0, and would be
        rms = np.sqrt(weight.v / (1 - BETA2 ** step)) + 1e-8    # too small at first
        weight.data -= rate * (mean / rms + DECAY * weight.data)
        weight.grad = 0

# How wrong the model is on B texts that begin at these starts.
def loss_on(model, ids, starts):
    windows = starts[:, None] + np.arange(T)                    # (B, T)
    scores = transformer(model, ids[windows])
    return cross_entropy(scores, ids[windows + 1])          # the letters that came next

def validation_loss(model, ids):
    losses = []
    for first in range(0, len(ids) - B * T, B * T):     # a shorter rest is left out
        starts = first + T * np.arange(B)
        losses.append(loss_on(model, ids, starts).data)
    return np.mean(losses)

# To train: guess, see how wrong it was, go back for the gradients, and move every weight.
def train(model, ids, rng):
    for step in range(1, STEPS + 1):
        starts = rng.integers(len(ids) - T, size=B)
        loss = loss_on(model, ids, starts)
        backward(loss)
        rate = RATE * min(step / 100, 1 - (step - 1) / STEPS)   # up, then slowly down
        adamw(model["weights"], step, rate)
        print(f"\rstep {step} of {STEPS}   loss {loss.data:.3f}", end="", flush=True)

# To write: guess the next letter, draw one by the probabilities, append it, and go on.
def write(model, text, count, rng):
    for _ in range(count):
        ids = encode(text[-T:])
        scores = transformer(model, ids[None])                  # (1, T or fewer, V)
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
    print(f"\nloss on the last tenth: {validation_loss(model, ids[end:]):.3f}")
    print(write(model, "\n", 500, rng))
