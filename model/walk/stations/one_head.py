"""Stations 1 to 5: one head, from dot products to dropout."""
import math

import numpy as np

import minigrad as mg
from minigrad import Tensor
from model.attention import causal_mask
from model.variants.heads import CausalAttention
from model.walk.published import KEY_WEIGHT, QUERY_WEIGHT, SENTENCE, VALUE_WEIGHT, WORDS
from model.walk.station import Question, Table, Trace, station
from model.walk.stations.purpose import made_by_hand

NAMES = SENTENCE.split()
CHANNELS = ["1", "2", "3"]
BY_KEY = "query", "key"                 # what a row and a column stand for
BY_CHANNEL = "word", "channel"
LOOKS = NAMES, NAMES, BY_KEY            # the sides of a table of how words look at words
HOLDS = NAMES, CHANNELS, BY_CHANNEL     # and of what words hold


def single(array: np.ndarray) -> Tensor:
    """Return published numbers in float32, as a model has them."""
    return Tensor(array.astype(np.float32))


def published_head() -> CausalAttention:
    """Return a causal head with the published matrices."""
    head = CausalAttention(3, 3, context_length=6)
    head.load_state_dict({"query.weight": QUERY_WEIGHT.astype(np.float32),
                          "key.weight": KEY_WEIGHT.astype(np.float32),
                          "value.weight": VALUE_WEIGHT.astype(np.float32)})
    return head


@station("Words look at words", "Words", 10, read="softmax in minigrad/formulas.py")
def alike():
    x = single(WORDS)
    with Trace() as trace:
        scores = x @ x.T
        weights = mg.softmax(scores)
        context = weights @ x
    yield """
        A language model reads some words and predicts the next one.  For that, each word must
        learn something of the others: "it" must find the word that it stands for.  The part of a
        model in which words look at each other is called attention.  This walk builds it, with
        numbers that you can work out on paper.

        A computer cannot multiply words.  So each word gets a row of numbers, its embedding.  (What
        gets one is called a token: a word, a part of a word, or a letter.)  The places of the
        numbers are called channels.  A model has hundreds of channels, and learns the numbers.
        Ours are made up."""
    yield Table("The embeddings", WORDS, NAMES, CHANNELS, digits=2, axes=BY_CHANNEL)
    yield """
        Think of a row as an arrow.  In a model, words of similar meaning point in similar
        directions.  Here the angle between "journey" and "starts" is 1.5 degrees, and between
        "one" and "step" it is 68 degrees.

        How well do two words go together?  Multiply their numbers channel by channel, and add the
        products.  This sum is called the dot product of two rows.  For "journey" and "starts":

            0.55 * 0.57 + 0.87 * 0.85 + 0.66 * 0.64 = 1.4754

        Such a number is called a score.  The product of two tables, written `@`, holds many of
        them: in row `i` and column `j` it has the dot product of row `i` of the first table and
        column `j` of the second.  `x.T` is the table `x` with rows and columns exchanged, so `x @
        x.T` holds the scores of all pairs.  Above the table is the line of source that computed it,
        with its file and number."""
    yield trace.table("Scores", scores, NAMES, NAMES, ("word", "word"))
    yield """
        A dot product is the product of both lengths and the cosine of the angle.  So long rows
        have large scores: "with" goes better with "journey" than with itself.

        Now we turn the scores of a row into shares, which are positive and add up to 1.  Scores
        can be negative, but `e` (2.718...) to the power of a score is always positive.  We divide
        each such power by their sum.  This is called softmax."""
    yield Table('Softmax of the row of "journey"',
                np.stack([scores.data[1], np.exp(scores.data[1]), weights.data[1]]),
                ["score", "e to its power", "divided by their sum"], NAMES)
    yield "The shares of all rows are called attention weights."
    yield trace.table("Weights", weights, *LOOKS)
    yield """
        Finally, each word gets a new row: the mean of all embeddings, in which each counts with
        its weight.  For "journey", it is 0.1385 times the row of "Your", plus 0.2379 times its
        own row, and so on.  The new row is called the context vector."""
    yield trace.table("Context vectors", context, *HOLDS)
    yield """
        All of it is one formula, `softmax(X X^T) X`, where `X^T` is `x.T`.  With `T` words of `C`
        channels, `X` is `T x C`, here 6 x 3, and `X X^T` is `T x T`.  The result is `T x C` again.
        But only the embeddings can be learnt.  The next station adds more."""
    yield Question(
        """The table of scores is symmetric: the score of "journey" and "starts" is the score of
        "starts" and "journey".  Is the table of weights symmetric as well?""",
        f"""No.  Both scores are {scores.data[1, 2]:.4f}.  But softmax divides by the sum of the
        powers of a row, and the rows have different sums.  So "journey" gives "starts" a weight
        of {weights.data[1, 2]:.4f}, and "starts" gives "journey" {weights.data[2, 1]:.4f}.""")


@station("Queries, keys and values", "Q, K, V", 14, read="SelfAttention in model/variants/heads.py")
def roles():
    head = published_head()
    x = single(WORDS)
    with Trace() as trace:
        queries, keys, values = head.query(x), head.key(x), head.value(x)
        scores = queries @ keys.T
    yield """
        In the first station a word had one row for everything.  But it plays three roles, as in a
        search:

            query   what is searched for
            key     how a thing is labelled
            value   what one gets

        So each word gets three rows.  A head of attention makes them with three matrices, which are
        tables of numbers.  Each row of a matrix makes one number: the dot product of this row and
        the embedding."""
    yield from made_by_hand()
    yield """
        Now "creature" is soft and coloured.  In a model, nobody writes the matrices: they are drawn
        at random, and training changes them.  From here on we use random ones for our six words:"""
    yield Table("Random matrices", np.concatenate([QUERY_WEIGHT, KEY_WEIGHT, VALUE_WEIGHT]),
                [f"{role} {c}" for role in ("query", "key", "value") for c in CHANNELS],
                [f"channel {c}" for c in CHANNELS], digits=5)
    yield """
        The first row and the row of "journey" make the first number of its query:

            0.55 * -0.23543 + 0.87 * 0.01912 + 0.66 * -0.28675 = -0.3021

        For all words at once it is written `x @ W.T`, if `W` is a matrix in this form.  Some books
        exchange rows and columns of `W`, and write `x @ W`; the three products are the same.  (The
        line of source can also add a bias.  Here it has none.)"""
    yield trace.table("Queries", queries, *HOLDS)
    yield trace.table("Keys", keys, *HOLDS)._replace(line=None)
    yield trace.table("Values", values, *HOLDS)._replace(line=None)
    yield """
        In the table of scores a row belongs to a query, the word that looks, and a column to a key,
        the word that is found."""
    yield trace.table("Scores", scores, *LOOKS)
    one = scores.data[1, 2]
    other = scores.data[2, 1]
    yield Question(
        "This table of scores is not symmetric.  What has changed since the first station?",
        f"""There, both words of a pair played the same role.  Here, "journey" looks for "starts"
        with its query, and meets the key of "starts"; the score is {one:.4f}.  When "starts" looks
        for "journey", its own query meets the key of "journey"; the score is {other:.4f}.""")


@station("Scores are divided by the square root of D", "Scaling", 8,
         read="softmax_vjp in minigrad/formulas.py")
def scaling():
    head = published_head()
    x = single(WORDS)
    scores = head.query(x) @ head.key(x).T
    with Trace() as trace:
        scaled = scores / math.sqrt(3)
        weights = mg.softmax(scaled)
    r = np.random.default_rng(0).standard_normal
    sizes = (4, 64, 1024)
    drawn = [(r((1000, 1, D)) @ r((1000, 6, D)).swapaxes(1, 2))[:, 0] for D in sizes]
    y = np.array([[mg.softmax(Tensor(s / by)).data.max(axis=1) for by in (1, math.sqrt(D), D)]
                  for s, D in zip(drawn, sizes)])
    names = [f"D = {D:,}" for D in sizes]
    ways = ["scores as they are", "divided by root D", "divided by D"]
    yield """
        `D` is the number of channels of a query and a key.  A score is a sum of `D` products, so
        with many channels scores lie far apart.  How far?  If the numbers are drawn at random, some
        products are positive and some are negative, and most of them cancel.  The sum of `D` such
        products is typically as large as the square root of `D`.

        Let us try it with 1,000 random queries and six random keys for each.  The standard
        deviation says how far numbers typically lie from their mean."""
    yield Table("How far apart the scores are", np.std(drawn, axis=(1, 2))[:, None], names,
                ["standard deviation"], digits=2)
    yield """
        If scores lie far apart, softmax gives nearly everything to the largest one.  Therefore all
        scores are divided by the square root of `D`:"""
    yield Table("The largest weight of six, averaged over 1,000 queries", y.mean(axis=2), names,
                ways, digits=2)
    yield """
        What is wrong with a weight near 1?  A model learns by small changes of its scores.  If a
        score changes a little, its weight `y` changes `y (1 - y)` times as much: this is the
        derivative of softmax.  It is 0.25 for `y` = 0.5, and almost 0 for `y` near 1.  Then nothing
        is learnt."""
    yield Table("`y (1 - y)` for the largest weight, the median over 1,000 queries",
                np.median(y * (1 - y), axis=2)[:, :2], names, ways[:2], digits=7)
    yield "In our head `D` is 3."
    yield trace.table("Scores, scaled", scaled, *LOOKS)
    yield trace.table("Weights", weights, *LOOKS)
    yield """
        All weights are near one sixth, 0.17.  Training would move the scores apart where that
        helps."""
    yield Question(
        "What happens if scores are divided by `D` instead of its square root?",
        f"""The second table shows it in its last column: for `D` = 1,024 the largest weight is
        {y[-1, -1].mean():.2f}, one sixth.  With many channels all scores would be close to 0, and
        all weights equal.  The head would look everywhere alike, and could choose nothing.""")


@station("The future is hidden before the softmax", "Mask", 10,
         read="attention in model/attention.py")
def masking():
    head = published_head()
    x = single(WORDS)
    changed = np.array([*WORDS[:5], [5, -5, 5]])

    def scaled_scores(words):
        return head.query(single(words)) @ head.key(single(words)).T / math.sqrt(3)
    scores = scaled_scores(WORDS)
    values = head.value(x)
    with Trace() as trace:
        masked = scores + causal_mask(6)
        weights = mg.softmax(masked)
        context = weights @ values
    yield """
        At each word the model must predict the next one: at "Your" it predicts "journey", at
        "journey" it predicts "starts".  If "journey" could look at "starts", the model would copy
        it and learn nothing.  So a word may look at itself and at the words before it, and the
        later ones are hidden from it.  To hide them, minus infinity is added to their scores.
        The table of what is added, 0 or minus infinity, is called the causal mask."""
    yield trace.table("Scores with the mask", masked, *LOOKS)
    yield """
        `e` to the power of minus infinity is 0.  So softmax gives a hidden word the weight 0, and
        the weights of the others add up to 1."""
    yield trace.table("Weights", weights, *LOOKS)
    yield trace.table("Context vectors", context, *HOLDS)
    yield """
        That is all of a head.  In the paper that introduced it (Vaswani and others, 2017) it is
        one formula, to which we add the mask.  `Q`, `K`, `V` and the result are `T x D`:

            softmax(Q K^T / sqrt(D) + mask) V

        `Q K^T` and the mask are squares of `T x T` numbers:"""
    yield Table("Scores in each head of each layer", np.array([[36, 2048 ** 2]]), ["scores"],
                ["6 words", "2,048 words"], digits=0)
    yield """
        Must it be minus infinity?  A score of 0 hides nothing, as `e^0` is 1 (second row below).
        Weights that are set to 0 after the softmax do not add up to 1 (third row).  And the future
        still shows: it was part of the sum by which softmax divided.  If the last word's embedding
        is (5, -5, 5), the weight of "Your" changes (last row)."""
    one, other = (mg.softmax(scaled_scores(words)).data for words in (WORDS, changed))
    yield Table('The weights of "Your"', np.stack([
        weights.data[0], mg.softmax(mg.where(np.tri(6, dtype=bool), scores, 0.0)).data[0],
        one[0] * np.eye(6)[0], other[0] * np.eye(6)[0]]),
        ["minus infinity", "scores set to 0", "weights set to 0", 'and "step" changed'], NAMES)
    yield """
        One could divide each row by its sum once more.  Often that gives the weights of the mask.
        But for the scores 0 and 800, softmax gives 0 and 1.  If the second is hidden then, we
        divide 0 by 0 and get `nan`, "not a number".  The mask gives 1 and 0."""
    yield Question(
        """The first row of weights has one number that is not 0, and it is 1.0000.  Could other
        matrices change it?""",
        """No.  The first word can look at itself only.  Softmax of a single score is 1, whatever
        the score is.  So the context vector of the first word is its own value.""")


# Which weights were kept in the published example, read off its zeros.
KEPT = np.tril([[[0, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1],
                 [1, 1, 1, 0, 1, 1], [1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 1]],
                [[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1],
                 [1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1], [1, 0, 1, 1, 1, 0]]]).astype(bool)


@station("Dropout on the weights", "Dropout", 6, read="dropout in minigrad/formulas.py")
def dropping():
    head = published_head()
    x = single(WORDS)
    weights = mg.softmax(head.query(x) @ head.key(x).T / math.sqrt(3) + causal_mask(6))
    values = head.value(x)
    with Trace() as trace:
        first = mg.where(KEPT[0], weights / 0.8, 0.0)
        first_context = first @ values
        second = mg.where(KEPT[1], weights / 0.8, 0.0)
        second_context = second @ values
    yield """
        A model with many numbers can learn its text by heart, which does not help with a new text.
        Dropout makes that harder.  In training, some numbers are set to 0 at random, different ones
        each time, so that the model cannot rely on any one of them.  Here these are one in five of
        the attention weights.  The others are divided by 0.8.

        Let us read the sentence twice.  A zero on or below the diagonal is a weight that was
        dropped; those above it are hidden by the mask, as before.  `KEPT` says which weights
        were kept, and `mg.where(condition, x, y)` takes `x` where it holds, and else `y`."""
    yield trace.table("Weights at the first reading", first, *LOOKS)
    yield trace.table("Context vectors at the first reading", first_context, *HOLDS)
    yield trace.table("Weights at the second reading", second, *LOOKS)
    yield trace.table("Context vectors at the second reading", second_context, *HOLDS)
    yield """
        At the first reading "Your" lost its only weight, and its context vector is 0.  The rows of
        one reading do not add up to 1; over many readings they do, on average.  When the model
        writes text, or when we measure how good it is, nothing is dropped."""
    kept = first.data[1, 0]
    whole = weights.data[1, 0]
    yield Question(
        f"""The weight of "journey" for "Your" was {whole:.4f}, and is now {kept:.4f} or 0.  Why
        are the weights that are kept made larger?""",
        f"""So that the mean stays the same.  In four of five readings the weight is {kept:.4f}, in
        one of five it is 0, and `0.8 * {kept:.4f} = {whole:.4f}`.  So the weights have the usual
        size when nothing is dropped.""")
