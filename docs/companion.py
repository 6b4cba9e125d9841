"""Write docs/one.html, the companion of docs/one.py: python docs/companion.py

Beside each part of the code stand what it is for, where in the transformer it is, the numbers of
one real step with six words in place of letters, and where the house does the same.  A name in the
code and its numbers light up together.  No script is needed.
"""
import html
import re
import types
from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path(__file__).parent
SOURCE = (FOLDER / "one.py").read_text(encoding="utf-8")
WORDS = "Your journey starts with one step".split()
SIZES = {"B": 1, "T": 5, "C": 4, "H": 2, "D": 2, "LAYERS": 1, "V": 6, "FLOAT": np.float64}
SHOWN = "B", "T", "C", "H", "D", "LAYERS", "V"
STEPS = 60          # of training on the sentence,
RATE = 0.1          # the first one at this rate, the others at less
# The transformer as a row of boxes, each with the part of the page that is about it.
BOXES = {"x": "Embeddings", "norm": "The norm", "heads": "Heads", "shares": "Attention",
         "+": "The transformer", "MLP": "The MLP", "scores": "The loss"}
# The boxes that a part is about.
HERE = {"The text": ["x"], "The way back": [*BOXES], "Embeddings": ["x"], "The norm": ["norm"],
        "Softmax": ["shares", "scores"], "The loss": ["scores"], "Heads": ["heads"],
        "Attention": ["heads", "shares"], "The MLP": ["MLP"], "The transformer": ["+"],
        "The first weights": ["x", "heads", "MLP"], "AdamW": ["x", "heads", "MLP"],
        "What is read, and what came": ["x", "scores"], "Training": [*BOXES],
        "Writing": ["scores"]}
# The names in the code of a part to which its first table belongs, its second, and so on.
NAMES = {"The sizes": [SHOWN[:-1]], "The text": [["encode"]],
         "Two operations on arrays": [["total"], ["turn"]], "A Tensor": [["__matmul__"]],
         "The way back": [["backward"], ["in_order"]], "Embeddings": [["embedding"]],
         "The norm": [["y"]], "Softmax": [["p"]], "The loss": [["expected", "came"]],
         "Heads": [["heads", "split"]], "Attention": [["shares"], ["shares"]],
         "The MLP": [["up"], ["relu_squared"]], "The transformer": [["transformer"]],
         "The first weights": [["matrix"]], "AdamW": [["data", "grad"]],
         "What is read, and what came": [["windows"]], "Training": [["loss"], ["model"]],
         "Writing": [["p"]]}


class Table(NamedTuple):
    """Numbers to show: (rows, columns), with a name for each row and each column, and one for all
    columns; probabilities are shaded, or have bars in the rows with these indices."""
    caption: str
    numbers: np.ndarray
    rows: list
    columns: list
    corner: str = ""
    shaded: bool = False
    bars: tuple = ()


class Part(NamedTuple):
    """What stands beside a paragraph of the code, which begins with these words."""
    begins: str
    title: str
    text: str
    house: list         # of (file, name)

    @property
    def id(self):
        """The name of its section in links."""
        return self.title.lower().replace(" ", "-").replace(",", "")


def load(source=SOURCE, **names):
    """Return one.py as a module in which these names have other values."""
    one = types.ModuleType("one")
    one.__file__ = str(FOLDER / "one.py")
    exec(compile(source, "one.py", "exec"), one.__dict__)
    one.__dict__.update(names)
    return one


def recorded(one, name):
    """Let a function of one.py remember its argument and its result, at each call."""
    f = getattr(one, name)
    calls = []

    def call(x):
        calls.append((x.data, f(x)))
        return calls[-1][1]
    setattr(one, name, call)
    return calls


def numbers():
    """Run one step with the six words; return the tables of each part, by its title."""
    one = load(**SIZES, ALPHABET=sorted(WORDS))
    ids = one.encode(WORDS)
    read = WORDS[:-1]
    model = one.new_model(np.random.default_rng(4))
    for w in model["weights"]:
        w.data *= 30            # so large that there is something to see
    starts = np.array([0])
    norms, heads, softmaxes, bends = (recorded(one, name) for name in (
        "norm", "heads", "softmax", "relu_squared"))
    loss = one.loss_on(model, ids, starts)
    one.backward(loss)
    x, normed = norms[0]
    _, query = heads[0]
    _, shares = softmaxes[0]
    _, expected = softmaxes[1]
    hidden, bent = bends[0]
    expected = expected.data[0]
    right = np.eye(6)[ids[1:]]
    used = one.Tensor([2, 3])
    y = used * used + used
    one.backward(y)
    row = one.Tensor([[2, 3]])
    column = one.Tensor([[5], [7]])
    product = row @ column
    one.backward(product)
    w = model["letters"]
    before = w.data[ids[0]].copy()
    gradient = w.grad[ids[0]].copy()
    one.adamw(model["weights"], 1, RATE)
    moved = w.data[ids[0]].copy()
    losses = [loss.data]
    for step in range(2, STEPS + 1):
        loss = one.loss_on(model, ids, starts)
        one.backward(loss)
        one.adamw(model["weights"], step, RATE / 3)
        losses.append(loss.data)
    after = one.softmax(one.transformer(model, ids[None, :-1])).data[0]
    pairs = np.array([[1, 2, 3], [4, 5, 6]])
    softmaxed = one.softmax(one.Tensor([2, 1, 0, -np.inf])).data
    block = {f"block: {name}": w for name, w in model["blocks"][0].items()}
    shapes = {"letters": model["letters"], "places": model["places"]} | block
    counted = len(one.in_order(one.loss_on(model, ids, starts), []))
    said = one.encode(WORDS)        # columns in the order of the sentence
    likeliest = [f"{word} {one.ALPHABET[i]}" for word, i in zip(read, after.argmax(axis=-1))]
    channels = [1, 2, 3, 4]
    return {
        "The sizes": [Table("Sizes: those of one.py, and those of this page",
                            np.array([[getattr(module, name) for name in SHOWN]
                                      for module in (load(), one)]),
                            ["one.py", "this page"], SHOWN)],
        "The text": [Table("The number of each word", ids[None], ["number"], WORDS)],
        "Two operations on arrays": [
            Table("The total of two rows: (2, 3) → (2, 1)",
                  np.hstack([pairs, one.total(pairs)]), ["", ""], ["", "", "", "total"]),
            Table("A turn of the same rows: (2, 3) → (3, 2)",
                  one.turn(pairs), ["", "", ""], ["", ""])],
        "A Tensor": [Table("y = a @ b, a row times a column, is 2 · 5 + 3 · 7 = 31.  The gradient "
                           "of each is the other:",
                           np.hstack([row.data.T, column.data, row.grad.T, column.grad]),
                           ["", ""], ["a", "b", "a.grad", "b.grad"])],
        "The way back": [Table("y = a * a + a, and its gradient 2 a + 1",
                               np.stack([used.data, y.data, used.grad]),
                               ["a", "y", "a.grad"], ["", ""]),
                         Table("Tensors that the loss of the six words was made from",
                               np.array([[counted]]), ["in the list"], [""])],
        "Embeddings": [Table("The rows of the five words that are read, each with its place's row "
                             "added", x[0], read, channels, "channel")],
        "The norm": [Table("The same rows, normalised: their mean square is 1", normed.data[0],
                           read, channels, "channel")],
        "Softmax": [Table("Four scores, and their probabilities",
                          np.array([[2, 1, 0, -np.inf], softmaxed]), ["score", "probability"],
                          ["", "", "", ""], bars=(1,))],
        "The loss": [Table("After “one”: what was expected, what came, and the difference, of "
                           "which a fifth is the gradient of the scores",
                           np.stack([expected[-1], right[-1], expected[-1] - right[-1]])[:, said],
                           ["expected", "came", "difference"], WORDS, bars=(0, 1))],
        "Heads": [Table("Channels of the query of each word, in two heads",
                        np.concatenate([query.data[0, 0], query.data[0, 1]], axis=1), read,
                        [1, 1, 2, 2], "head")],
        "Attention": [Table(f"How much each word (row) takes from each (column), head {h + 1}",
                            shares.data[0, h], read, read, shaded=True) for h in range(2)],
        "The MLP": [Table("The first four of 16 hidden channels, before relu²",
                          hidden[0, :, :4], read, channels, "channel"),
                    Table("and after it", bent.data[0, :, :4], read, channels, "channel")],
        "The transformer": [Table("What is expected after each word, before any training",
                                  expected[:, said], read, WORDS, shaded=True)],
        "The first weights": [Table("The shape of each weight here, and its numbers in all",
                                    np.array([[*w.data.shape, w.data.size]
                                              for w in shapes.values()]),
                                    list(shapes), ["rows", "columns", "in all"])],
        "AdamW": [Table(f"The row of “{WORDS[0]}” in the first step, at a rate of {RATE}",
                        np.stack([before, gradient, moved]), ["before", "gradient", "after"],
                        channels, "channel")],
        "What is read, and what came": [Table("The numbers of the words, at each place",
                                              np.stack([ids[:-1], ids[1:]]),
                                              ["read", "came next"], range(5), "place")],
        "Training": [Table("The loss on the six words after so many steps",
                           np.array([[losses[0], losses[9], losses[29], losses[-1]]]), ["loss"],
                           [0, 9, 29, STEPS - 1], "steps", bars=(0,)),
                     Table("What is then expected after each word", after[:, said], read, WORDS,
                           shaded=True)],
        "Writing": [Table("The likeliest next word, and its probability",
                          after.max(axis=-1)[:, None], likeliest, [""], bars=range(5))],
    }


PARTS = [
    Part('"""', "The sizes",
         "These numbers say how large the model is and how it learns. More channels and layers "
         "learn more, and take longer. All arrays below have axes of these sizes; the comments "
         "name them.",
         [("model/config.py", "ModelOptions"), ("model/settings.py", "Settings")]),
    Part("# The text.", "The text",
         "This page reads six words in place of a million letters. The rest is the same. "
         "`encode` is all that there is to a tokenizer of letters.",
         [("data/reading.py", "read_text"), ("data/tokenizer.py", "CharTokenizer")]),
    Part("# Two operations", "Two operations on arrays",
         "The last two axes change places, or the last one is summed. Axes before these are left "
         "as they are: `...` stands for them.",
         [("minigrad/shapes.py", "swapaxes"), ("minigrad/shapes.py", "sum_")]),
    Part("# A Tensor", "A Tensor",
         "Each operation makes a new Tensor, and notes how to go back through it. In `y = a @ b`, "
         "each number of `y` is a sum of products. The gradient of one factor is that of the "
         "product, times the other factor: so `a` gets `g` times a turned `b`, and `b` gets a "
         "turned `a` times `g`.",
         [("minigrad/core.py", "Tensor"), ("minigrad/core.py", "op"),
          ("minigrad/elementwise.py", "multiply"), ("minigrad/shapes.py", "matmul")]),
    Part("# The way back", "The way back",
         "`a` is used three times in `a * a + a`. Each use sends a gradient back, and `backward` "
         "adds them. The `while` loop undoes broadcasting: what NumPy repeated along an axis gets "
         "the sum over that axis. The house has a heap in place of the list, and needs no "
         "recursion.",
         [("minigrad/core.py", "_run_backward")]),
    Part("# An embedding", "Embeddings",
         "To look up row 3 is the same as to multiply by a vector of zeros with a 1 at index "
         "3. The look-up is just faster. `np.add.at` adds twice where an id stands twice; "
         "`rows[ids] = g` would not, and no test that uses each id once would notice.",
         [("minigrad/nn.py", "Embedding"), ("minigrad/formulas.py", "add_rows")]),
    Part("# A norm", "The norm",
         "The derivative takes from `g` what points along `y`: to make a row longer or shorter "
         "changes nothing after the norm, so no gradient can ask for it.",
         [("minigrad/formulas.py", "norm"), ("minigrad/formulas.py", "norm_vjp")]),
    Part("# Softmax", "Softmax",
         "A score that is higher by 1 makes a probability 2.7 times as large. A score of `-inf` "
         "gives 0. A gradient that is the same for all probabilities does nothing, and "
         "`total(g * p)` takes it off.",
         [("minigrad/formulas.py", "softmax"), ("minigrad/formulas.py", "softmax_vjp")]),
    Part("# The loss", "The loss",
         "A model that knows nothing expects each of 62 letters alike, and its loss is log 62 "
         "= 4.13. A step raises the score of what came and lowers all others, in proportion to "
         "what was expected.",
         [("minigrad/formulas.py", "cross_entropy")]),
    Part("# Attention lets", "Heads",
         "No number changes here, only where it stands: (B, T, C) becomes (B, H, T, D). What "
         "moves numbers to other places has the move back as its derivative.",
         [("minigrad/network.py", "self_attention")]),
    Part("# Now the heads", "Attention",
         "The paper writes softmax(Q Kᵀ / √D) V, and so does this. Each row below sums to 1. "
         "Above the diagonal stand zeros: no word sees those after it. The house has three "
         "projections in one matrix, and a kernel that never stores the weights.",
         [("model/attention.py", "attention"), ("model/attention.py", "MultiHeadAttention"),
          ("minigrad/kernels/attention.py", "score_block")]),
    Part("# The MLP", "The MLP",
         "Two thirds of the weights of a block are here. Without the bend of relu² at 0, two "
         "matrices in a row would be no more than one.",
         [("model/layers.py", "MLP"), ("minigrad/formulas.py", "mlp_vjp")]),
    Part("# The transformer.", "The transformer",
         "`x = x + f(x)` is the idea that made deep networks trainable: each block only adds "
         "to what is there, so the gradient of the last reaches the first unharmed. One table "
         "is used twice, to read letters and to score them.",
         [("model/transformer.py", "Block"), ("model/transformer.py", "Transformer")]),
    Part("# Weights begin", "The first weights",
         "If the weights were large, the first guesses would be wild: sure, and wrong. The "
         "numbers on this page are 30 times as large as those of one.py, so that you can see "
         "differences.",
         [("minigrad/nn.py", "normal")]),
    Part("# AdamW", "AdamW",
         "In the first step, the mean divided by the rms is 1 or −1: but for the decay, each "
         "weight moves by the rate, against its gradient. Later, weights whose gradients keep "
         "their sign move most. The rate of this page is large, so that it learns its six words "
         f"in {STEPS} steps.",
         [("minigrad/formulas.py", "adamw"), ("minigrad/optim.py", "AdamW")]),
    Part("# How wrong", "What is read, and what came",
         "A text of T letters is T exercises at once: after each letter, the next one is to be "
         "guessed. Attention sees no later letter, so none can copy its answer.",
         [("minigrad/network.py", "cross_entropy"), ("model/scoring.py", "evaluate")]),
    Part("# To train", "Training",
         "Four lines: the loss, backward, the rate, the step. The rest chooses texts and "
         "prints. Six words are soon known by heart; a million letters are not, and what helps "
         "is to learn their rules.",
         [("train.py", "steps"), ("data/batches.py", "random_batch")]),
    Part("# To write", "Writing",
         "Training made the right next word likely, and that is all that writing needs. It "
         "reads the whole window again for each letter. The house keeps keys and values: with "
         "the same shapes, each on one thread and in turns, it wrote 50 letters in a tenth of "
         "the time.",
         [("model/generation.py", "generate"), ("model/kv_cache/decoder.py", "Decoder")]),
    Part("# The last tenth", "All of it",
         "The counted trigram, which knows which letter usually follows each two, has a loss "
         "of 1.704 on the same tenth. The program ends below it, and train.py far below; "
         "docs/recipe.md has both losses.",
         [("data/ngrams.py", "ngram_losses"), ("train.py", "train")]),
]

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1c1f24; --soft: #59616d; --line: #e2e5ea;
  --code: #f6f7f9; --blue: #1f5fa8; --orange: #a8480f; --light: #ffe9a8; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e6e8eb; --soft: #a0a8b3;
  --line: #2c323a; --code: #1b1f25; --blue: #8ab8f0; --orange: #f0a26c; --light: #4d4418; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
header, section { max-width: 90rem; margin: 0 auto; padding: 1.5rem; }
header { padding-top: 3rem; } h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .6rem; }
header p { max-width: 42rem; margin: 0 0 .6rem; }
section { display: grid; grid-template-columns: minmax(0, 45rem) minmax(0, 1fr); gap: 2rem;
  border-top: 1px solid var(--line); align-items: start; }
/* While the longer of both columns is read, the other stays in view. */
section > * { position: sticky; top: 1rem; }
code { white-space: nowrap; font: .9em ui-monospace, Menlo, Consolas, monospace; }
pre { margin: 0; padding: 1rem; background: var(--code); border-radius: 8px; }
pre code { display: block; font-size: 12.5px; line-height: 1.5; }
/* A line that is too long goes on further to the right, from a space; --indent is its own. */
pre span.line { display: block; white-space: pre-wrap; overflow-wrap: anywhere;
  --in: calc((var(--indent) + 2) * 1ch);
  padding-left: var(--in); text-indent: calc(-1 * var(--in)); }
pre .whole { white-space: nowrap; }
pre .comment { color: var(--soft); }
h2 { font-size: 1.2rem; margin: 0 0 .4rem; } p { margin: 0 0 .8rem; }
figure { overflow-x: auto; margin: 0 0 1rem; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
figcaption { font-size: 13px; color: var(--soft); padding-bottom: .2rem; }
th { font-weight: 500; color: var(--soft); }
th, td { text-align: right; padding: .1rem .5rem; white-space: nowrap; }
tr > :first-child { text-align: left; padding-left: 0; }
td.share { background: color-mix(in srgb, var(--blue) calc(var(--p) * 48%), transparent); }
/* A bar stands in its cell, as high as its number; in a table of one column it lies. */
td.bar { --bar: color-mix(in srgb, var(--blue) 40%, transparent); height: 3.4rem;
  vertical-align: bottom; border-left: 3px solid var(--ground);
  background: linear-gradient(to top, var(--bar) calc(var(--p) * 100%), var(--code) 0); }
td.bar:only-of-type { height: auto; min-width: 12rem; border: 0; text-align: left;
  background: linear-gradient(to right, var(--bar) calc(var(--p) * 100%), var(--code) 0); }
td.plus { color: var(--blue); } td.minus { color: var(--orange); }
td, .boxes a { print-color-adjust: exact; }
/* The transformer, and where in it a part of the code is */
.boxes { display: flex; flex-wrap: wrap; gap: .3rem 0; margin: 0 0 1.6rem; padding: 0;
  list-style: none; font-size: 13px; }
.boxes li { position: relative; } .boxes li + li::before { content: attr(data-arrow);
  color: var(--soft); padding: 0 .25rem; }
.boxes a { display: inline-block; padding: .1rem .4rem; border: 1px solid var(--line);
  border-radius: 5px; color: var(--soft); text-decoration: none; }
.boxes a[aria-current] { border-color: var(--blue); background: var(--blue); color: var(--ground);
  font-weight: 600; }
.boxes .here { position: absolute; top: 1.75rem; right: 0; font-size: 11px; color: var(--blue);
  white-space: nowrap; }
/* A name in the code, and the table that it has lit up */
a.name { color: inherit; text-decoration: underline dotted var(--soft);
  text-underline-offset: 3px; }
figure:target { outline: 2px solid var(--blue); outline-offset: 4px; }
.house { font-size: 14px; color: var(--soft); } .house a, header a { color: var(--blue); }
@media (max-width: 72rem) {
  header, section { max-width: 48rem; }
  section { grid-template-columns: minmax(0, 1fr); gap: 1rem; }
  section > * { position: static; }
  section > div { display: contents; } h2 { order: -1; margin: 0; }
  .boxes { order: -1; margin: 0 0 1rem; } figure, p { margin: 0; } }
@media (max-width: 40rem) {
  header, section { padding: 1.5rem 1rem; } pre { padding: .8rem; } pre code { font-size: 11.5px; }
  pre .gap { white-space: normal; }
  /* The lines of a comment become one, which is broken anew. */
  pre span.note { display: inline; white-space: normal; } .note .sign { display: none; }
  th, td { padding: .1rem .3rem; } table { font-size: 12.5px; } }
@media print { section { break-inside: avoid; } section > * { position: static; } }
"""
LEDE = (
    "A transformer in 250 lines, part by part, with the numbers of one real step.  The code is "
    "<a href='one.py'>one.py</a>, which learns to write from plays in about three minutes; "
    "<a href='recipe.md#beside-one-file'>the recipe</a> says what it reaches.  The numbers come "
    "from the same code, run on six words, “{words}”, with four channels, so that all of them "
    "fit on this page.")


def paragraphs():
    """Return the paragraphs of one.py: the head, then what each comment at the margin begins."""
    return [piece.strip("\n") for piece in re.split(r"\n\n(?=# )", SOURCE)]


def prose(text):
    """Return text as HTML, with names in `backquotes` as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def linked(statement, links):
    """Return a statement as HTML, in which these names are links to their tables."""
    shown = html.escape(statement, quote=False)
    if not links:
        return shown

    def link(match):
        name = match.group()
        return f"<a class='name n-{name}' href='#{links[name]}'>{name}</a>"
    return re.sub(rf"\b({'|'.join(links)})\b", link, shown)


def coloured(code, links):
    """Return code as HTML, each line with its indent, its comment in another colour, and names as
    links."""
    lines = []
    head = re.match(r"(# .*\n)*", code).group()
    for i, line in enumerate(head.splitlines()):
        sign = "# " if i == 0 else "<span class='sign'># </span>"
        text = html.escape(line.removeprefix("# "), quote=False)
        lines.append(f"<span class='line note comment'>{sign}{text}\n</span>")
    for line in code.removeprefix(head).split("\n"):
        indent = len(line) - len(line.lstrip())
        statement, gap, comment = re.fullmatch(r"(.*?)( *)(# .*)?", line).groups()
        shown = linked(statement, links)
        if comment:
            is_short = indent + len(comment) < 40       # such as a shape: in one piece on a phone
            kind = "comment whole" if is_short else "comment"
            comment = html.escape(comment, quote=False)
            shown += f"<span class='gap'>{gap}</span><span class='{kind}'>{comment}</span>"
        shown = re.sub(r"(?<= )-\w[\w.]*", r"<span class='whole'>\g<0></span>", shown)
        lines.append(f"<span class='line' style='--indent:{indent}'>{shown}\n</span>")
    return "".join(lines)


def written(number):
    """Return a number as it is printed: whole ones as they are, others with two digits."""
    if number == -np.inf:
        return "−∞"
    digits = 0 if float(number).is_integer() else 2
    return f"{number:,.{digits}f}".replace("-", "−")


def header(name, scope):
    """Return the head of a row or a column as HTML; an empty cell without a name."""
    if name == "":
        return "<td></td>"
    return f"<th scope='{scope}'>{html.escape(str(name))}</th>"


def drawn(table, id, names):
    """Return a table as HTML; names in the code light it up."""
    lines = []
    if any(map(str, table.columns)):
        corner = f"<th>{table.corner}</th>" if table.corner else "<td></td>"
        lines.append(f"<tr>{corner}{''.join(header(name, 'col') for name in table.columns)}</tr>")
    has_signs = np.any(table.numbers < 0)
    largest = max((table.numbers[i].max() for i in table.bars), default=0)      # of one scale
    for i, (name, row) in enumerate(zip(table.rows, table.numbers, strict=True)):
        cells = []
        for number in row:
            if table.shaded:
                cells.append(cell(number, "share", number))
            elif i in table.bars:
                cells.append(cell(number, "bar", number / largest))
            else:
                cells.append(cell(number, sign(number) if has_signs else ""))
        lines.append(f"<tr>{header(name, 'row')}{''.join(cells)}</tr>")
    caption = html.escape(table.caption)
    kinds = " ".join(f"t-{name}" for name in names)
    return (f"<figure id='{id}' class='{kinds}' tabindex='0' aria-label='{caption}'>"
            f"<figcaption>{caption}</figcaption><table>{''.join(lines)}</table></figure>")


def sign(number):
    """Return the class of a number by its sign, which has a colour."""
    if number == 0:
        return ""
    return "plus" if number > 0 else "minus"


def cell(number, kind="", share=None):
    """Return a number as HTML; the larger its share, the darker or higher it is."""
    style = "" if share is None else f" style='--p:{share:.2f}'"
    attribute = f" class='{kind}'" if kind else ""
    return f"<td{attribute}{style}>{written(number)}</td>"


def row_of_boxes(title):
    """Return the boxes of the transformer as HTML, with those that a part is about; "" if it is
    about none."""
    here = HERE.get(title, [])
    if not here:
        return ""
    arrow = "→"
    words = "this is all of it" if len(here) == len(BOXES) else "you are here"
    if title == "The way back":
        arrow = "←"
        words = "from its end to its beginning"
    boxes = []
    for name, part in BOXES.items():
        current = " aria-current='true'" if name in here else ""
        mark = f"<span class='here'>{words}</span>" if name == here[-1] else ""
        boxes.append(f"<li data-arrow='{arrow}'><a href='#{slug(part)}'{current}>{name}</a>{mark}"
                     "</li>")
    return (f"<ol class='boxes' aria-label='The transformer; this part is about "
            f"{', '.join(here)}'>{''.join(boxes)}</ol>")


def slug(title):
    """Return the name of a section in links."""
    return title.lower().replace(" ", "-").replace(",", "")


def section(part, code, tables):
    """Return a paragraph of the code and what stands beside it."""
    found = {}
    for file, name in part.house:
        found.setdefault(file, []).append(f"<code>{name}</code>")
    places = "; ".join(f"{', '.join(names)} in <a href='../{file}'>{file}</a>"
                       for file, names in found.items())
    id = slug(part.title)
    links = {}
    figures = []
    for table, names in zip(tables, NAMES.get(part.title, []), strict=True):
        place = f"{id}-{len(figures) + 1}"
        for name in names:
            links.setdefault(name, place)
        figures.append(drawn(table, place, names))
    return (f"<section id='{id}'><pre><code>{coloured(code, links)}</code></pre>\n"
            f"<div>{row_of_boxes(part.title)}<h2>{part.title}</h2><p>{prose(part.text)}</p>"
            f"{''.join(figures)}<p class='house'>In the house: {places}.</p></div></section>")


def lights():
    """Return the rules by which a name and its tables light up together."""
    rules = []
    for name in sorted({name for tables in NAMES.values() for names in tables for name in names}):
        rules.append(f"section:has(.n-{name}:is(:hover, :focus)) .t-{name}, "
                     f"section:has(.t-{name}:hover) .n-{name} {{ background: var(--light); }}\n")
    return "".join(rules)


def page():
    """Return the whole page."""
    tables = numbers()
    sections = []
    for part, code in zip(PARTS, paragraphs(), strict=True):
        assert code.startswith(part.begins), (part.title, code[:40])
        sections.append(section(part, code, tables.get(part.title, [])))
    lede = LEDE.format(words=" ".join(WORDS))
    return ("<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
            f"<title>The whole idea in one file</title>\n<style>{STYLE}{lights()}</style></head>\n"
            f"<body><header><h1>The whole idea in one file</h1><p>{lede}</p></header>\n<main>\n"
            + "\n".join(sections) + "\n</main></body></html>\n")


if __name__ == "__main__":
    (FOLDER / "one.html").write_text(page(), encoding="utf-8")
