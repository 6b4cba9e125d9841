"""Stations 8 to 10: the same attention by columns, key by key, and from another sequence."""
import numpy as np

from model.attention import attention
from model.variants.heads import CrossAttention
from model.variants.forms import ColumnAttention, IterativeAttention
from model.walk.published import WORDS
from model.walk.station import Question, Table, Trace, station
from model.walk.stations.one_head import (BY_CHANNEL, BY_KEY, CHANNELS, NAMES, published_head,
                                          single)


@station("Columns or rows", "Columns", 4, read="ColumnAttention in model/variants/forms.py")
def columns():
    x = single(WORDS)
    layer = ColumnAttention(3, 3)
    layer.load_state_dict(published_head().state_dict())
    with Trace() as trace:
        output = layer(x.T)
    yield """
        Some books and videos write a word as a column instead of a row.  Then a matrix stands to
        the left of what it multiplies.  In the table of scores, a key has a row and a query has a
        column, and softmax works down each column (`axis=-2`).  All else stays.  Here are the
        weights of station 4 in that form:"""
    yield trace.table("Weights, a query in each column", trace.by("softmax"), NAMES, NAMES,
                      ("key", "query"))
    yield "Each column adds up to 1.  The context vectors are columns as well:"
    yield trace.table("Context vectors", output, CHANNELS, NAMES, ("channel", "word"))
    yield Question(
        "In station 4 the mask hid what lies above the diagonal.  What does it hide here?",
        """What lies below.  A later word is a later row now, and a query must not look down.  If
        you mix up the two forms, you build a model that sees the future and not the past.""")


@station("One key at a time", "Key by key", 8, read="IterativeAttention in model/variants/forms.py")
def one_by_one():
    x = single(WORDS)
    head = published_head()
    query = head.query(x)[5:]
    keys = head.key(x)
    values = head.value(x)
    with Trace() as at_once:
        attention(query, keys, values)
    with Trace() as trace:
        IterativeAttention(3, 3, causal=False).mix(query, keys, values)
    scores = at_once.by("divide")[0]
    sums = [(value, line) for op, value, line in trace.made if op == "add"]
    totals, mixed = (np.concatenate([value for value, _ in sums[i::2]]) for i in range(2))
    rows = np.column_stack([scores, np.maximum.accumulate(scores), totals, mixed / totals])
    yield """
        Must a query see all keys at once?  No: attention can read one key and its value at a time,
        and forget them.  For each query it keeps the largest score so far, the sum of the powers of
        `e`, and the sum of the values, each times its power.  The second sum divided by the first
        is the context vector of what was read, with `s` for scores and `v` for values:

            (e^s1 * v1 + e^s2 * v2 + ...) / (e^s1 + e^s2 + ...)

        Powers are taken of a score minus the largest score, so that none can become too large for
        a computer.  When a key brings a new largest score, both sums first become smaller, by `e`
        to the power of (old largest - new largest), `shrunk` in the line of source.  `weight` is
        the power of the new score.  This is what the query of "step" meets:"""
    yield Table("After each key", rows, NAMES,
                ["score", "largest", "sum", *(f"context {c}" for c in CHANNELS)], sums[-1][1])
    yield """
        The last row is the context vector of "step" in station 4.  The square of `T x T` scores was
        never stored: each of `T` queries keeps `D + 2` numbers.  So attention can read very long
        texts.

        A program that writes text saves something else.  It gets one new word at a time, and each
        new query must see all keys and values so far.  So it keeps these, instead of computing
        them again for each word; `python -m model.sample` does so."""
    yield Question(
        "Why does a program that writes text keep the keys and values, but not the queries?",
        """A new word looks at all earlier words, so it needs their keys and values.  Nobody needs
        an old query again: its word has looked, and has its context vector.""")


@station("Queries from another sequence", "Cross", 6,
         read="CrossAttention in model/variants/heads.py")
def crossed():
    asking = [4, 5, 2]                      # one, step, starts
    layer = CrossAttention(3, 3)
    layer.load_state_dict(published_head().state_dict())
    x = single(WORDS[asking])
    context = single(WORDS)
    with Trace() as trace:
        output, weights = attention(layer.query(x), layer.key(context), layer.value(context))
    names = [NAMES[i] for i in asking]
    yield """
        So far a sentence looked at itself.  A translator looks elsewhere: while it writes a
        sentence, it looks at the sentence that it translates.  Only one thing changes: the queries
        come from one sequence, and the keys and values from the other.  Let three words, "one step
        starts", look at our six:"""
    yield trace.table("Weights", weights, names, NAMES, BY_KEY)
    yield """
        The table has a row for each query and a column for each key, so it need not be square.
        There is no mask: the other sentence is known from its first word to its last."""
    yield trace.table("Context vectors", output, names, CHANNELS, BY_CHANNEL)
    yield """
        In a trained model such a table shows what was learnt.  `python -m model.reverse` trains one
        that reads a string and writes it in reverse.  The first letter that it writes must look at
        the last letter of the string, the second at the last but one.  The page of this walk
        (`python -m model.walk --page`) shows these weights here: the diagonal runs the wrong
        way."""
    yield Question(
        """In a model that reverses strings, the string looks at itself, the answer looks at itself,
        and the answer looks at the string.  Which of the three needs a causal mask?""",
        """The second.  The answer is written letter by letter, so a letter must not look at the
        letters after it.  The string is known as a whole, whoever looks at it.""")
