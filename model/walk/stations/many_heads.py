"""Stations 6 and 7: several heads, the output matrix, and values of low rank."""
import numpy as np

import minigrad as mg
from model.attention import MultiHeadAttention, attention, causal_mask
from model.variants.forms import LowRankValueAttention
from model.walk.published import KEY_WEIGHT, OUT_BIAS, OUT_WEIGHT, QUERY_WEIGHT, VALUE_WEIGHT, WORDS
from model.walk.station import Question, Table, Trace, station
from model.walk.stations.one_head import CHANNELS, HOLDS, NAMES, published_head, single

HEADS = ["head 1", "head 2", "head 3"]
FROM, TO = ([f"{way} {c}" for c in CHANNELS] for way in ("from", "to"))


def three_heads() -> MultiHeadAttention:
    """Return three causal heads of one channel each, with the published matrices."""
    layer = MultiHeadAttention(3, 3, num_heads=3, bias=True)
    layer.load_state_dict({name: array.astype(np.float32) for name, array in (
        ("qkv.weight", np.concatenate([QUERY_WEIGHT, KEY_WEIGHT, VALUE_WEIGHT])),
        ("qkv.bias", np.zeros(9)), ("out.weight", OUT_WEIGHT), ("out.bias", OUT_BIAS))})
    return layer


@station("One head, many heads", "Heads", 9, read="split in model/attention.py")
def heads():
    x = single(WORDS)
    head = published_head()
    layer = three_heads()
    queries = head.query(x)
    keys = head.key(x)
    values = head.value(x)
    with Trace() as trace:
        found = [attention(queries[:, h:h + 1], keys[:, h:h + 1], values[:, h:h + 1],
                           causal_mask(6)) for h in range(3)]
        contexts = mg.concatenate([context for context, _ in found], -1)
        output = layer(x)
    yield """
        A head has one table of weights, so each word has one way to look at the others.  Language
        needs more: a verb looks for its noun, a pronoun for what it stands for.  So several heads
        work side by side, each with its own queries, keys and values.

        Let us split our head into three.  Head 1 takes the first channel of queries, keys and
        values, head 2 the second, head 3 the third.  `D` is now 1, and there are three tables of
        weights.  Here is the last row of each: how "step" looks at the words."""
    yield Table('The weights of "step"', np.stack([w.data[5] for _, w in found]), HEADS, NAMES,
                axes=("head", "key"))
    yield "Each head returns context vectors of one channel.  They are put side by side:"
    yield trace.table("Context vectors of three heads", contexts, NAMES, HEADS, ("word", "head"))
    yield """
        Last, one more matrix mixes what the heads found: the output matrix.  And a bias, one learnt
        number for each channel, is added."""
    yield Table("The output matrix, and the bias", np.column_stack([OUT_WEIGHT, OUT_BIAS]),
                [f"makes {c}" for c in CHANNELS], [*HEADS, "bias"], digits=5)
    yield trace.table("Output", output, *HOLDS)
    yield """
        (`MultiHeadAttention` in `model/attention.py` made this table.  It takes a batch, several
        texts at once, which is one more axis in front.  For a batch of 1 text, one product makes
        the queries of all heads, `[1, 6, 3]`.  They are split by heads, `[1, 6, 3, 1]`, and words
        and heads are exchanged, `[1, 3, 6, 1]`: now each head has a table of its own.)

        Each column of the output matrix belongs to a head.  A head's number times its column is
        what this head adds to the output.  For "journey":"""
    yield Table('What each head adds to the output of "journey"',
                np.vstack([contexts.data[1][:, None] * OUT_WEIGHT.T, OUT_BIAS, output.data[1]]),
                [*HEADS, "bias", "sum"], CHANNELS)
    yield Question(
        """One head of three channels and three heads of one channel have the same count of
        numbers in their matrices.  What do three heads gain, and what do they lose?""",
        """They gain tables of weights: three ways to look instead of one.  They lose channels in
        which a query and a key are compared: with one channel, a score is a single product.  Large
        models have heads of 64 or 128 channels, and as many heads as fit into the channels of a
        word.""")


@station("Values go down and up", "Rank", 8,
         read="LowRankValueAttention in model/variants/forms.py")
def ranks():
    C = 12_288
    D = 128
    layer = LowRankValueAttention(3, 1, 3)
    for h in range(3):
        layer.query[h].weight.data[...] = QUERY_WEIGHT[h:h + 1]
        layer.key[h].weight.data[...] = KEY_WEIGHT[h:h + 1]
        layer.value_down[h].weight.data[...] = VALUE_WEIGHT[h:h + 1]
        layer.value_up[h].weight.data[...] = OUT_WEIGHT[:, h:h + 1]
    with Trace() as trace:
        output = layer(single(WORDS))
    yield """
        Follow a word's value through head 1 of the last station.  First a row of the matrix for
        values makes one number of three: value-down.  In the end, a column of the output matrix
        makes three numbers of this one: value-up."""
    yield Table("Value-down of head 1", VALUE_WEIGHT[:1], ["down"], FROM)
    yield Table("Value-up of head 1", OUT_WEIGHT[:, :1], TO, ["up"])
    yield """
        Both steps together are one matrix, which says how much each channel of a word adds to each
        channel of the output:"""
    yield Table("Value-up times value-down of head 1", OUT_WEIGHT[:, :1] @ VALUE_WEIGHT[:1], TO,
                FROM, axes=("output", "channel"))
    yield """
        Each row is a multiple of value-down.  The rank of a matrix says how many rows are needed to
        build all of its rows; here it is 1.  With `D` channels in a head it is at most `D`: such a
        matrix can do less than a full one, and has far fewer numbers.

        A layer that is written as such a sum of heads has the output of the last station but for
        the bias.  For "journey", 0.5193 and the bias -0.4883 make 0.0311 (before rounding)."""
    yield trace.table("Sum of three heads", output, *HOLDS)
    yield f"""
        How many numbers does it save?  GPT-3 has {C:,} channels, 96 heads of {D} channels in each
        layer of attention, and 96 layers.  Its matrices for queries have {C:,} * {D} numbers.  A
        full value matrix would have {C:,} * {C:,}."""
    tally = dict.fromkeys(["query", "key", "value-down", "value-up"], C * D)
    of_a_head = sum(tally.values())
    counts = np.array([*tally.values(), of_a_head, C * C])
    yield Table("Numbers in one head, in a layer, in all layers",
                np.stack([counts, 96 * counts, 96 * 96 * counts], axis=1),
                [*tally, "together", "a full value matrix"], ["head", "layer", "all"], digits=0)
    yield Question(
        "How many times larger than a matrix for queries is a full value matrix?",
        f"""{C * C // tally["query"]} times, as {C:,} is {C // D} * {D}: {C * C:,} numbers in each
        head.  Down and up have {tally["query"]:,} each.  All of attention is then
        {96 * 96 * of_a_head:,}, a third of GPT-3's 175 billion.  The other two thirds,
        {96 * 2 * C * 4 * C / 1e9:.0f} billion, are in the MLPs of station 13: in each layer, two
        matrices of {C:,} * {4 * C:,}.""")
