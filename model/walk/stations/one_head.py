"""Stations 1 to 5: one head, from dot products to dropout."""
import math

import numpy as np

import minigrad as mg
from minigrad import Tensor
from model.attention import causal_mask
from model.variants.heads import CausalAttention
from model.walk.published import (KEY_WEIGHT, QUERY_WEIGHT, SENTENCE, VALUE_WEIGHT, W_KEY, W_QUERY,
                                  W_VALUE, WORDS)
from model.walk.station import Question, Table, Trace, station

NAMES = SENTENCE.split()
CHANNELS = ["1", "2", "3"]
LOOKS, HOLDS = ("query", "key"), ("word", "channel")    # what a row and a column of a table is


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


@station("Words look at words", minutes=10)
def alike():
    x = single(WORDS)
    with Trace() as trace:
        scores = x @ x.T
        weights = mg.softmax(scores)
        context = weights @ x
    powers = np.exp(scores.data[1])
    yield """
        A language model reads some words and predicts the next one.  For that, each word must
        learn something of the others: "it" must find the word that it stands for.  The part of a
        model in which words look at each other is called attention.  This walk builds it, step by
        step, with numbers that you can work out on paper.

        A computer cannot multiply words.  So each word gets a row of numbers, its embedding.
        Here are six words with three numbers each; the places of the numbers are called channels.
        A model learns its numbers, and has hundreds of channels.  These are made up, and three
        are enough to follow."""
    yield Table("The embeddings", WORDS, NAMES, CHANNELS, digits=2, axes=HOLDS)
    yield """
        How well do two words go together?  Multiply their numbers channel by channel, and add the
        products.  This sum is called the dot product of two rows.  It is large if both rows have
        large numbers in the same channels.  For "journey" and "starts":

            0.55 * 0.57 + 0.87 * 0.85 + 0.66 * 0.64 = 1.4754

        Such a number is called a score.  The product of two tables, written @, holds many of them:
        in row i and column j it has the dot product of row i of the first table and column j of
        the second.  x.T is the table x with rows and columns exchanged, so x @ x.T holds the
        scores of all pairs.  Below, you see the line of source that computed them, and its place:
        the file, and the number of the line."""
    yield trace.table("Scores", scores, NAMES, NAMES, ("word", "word"))
    yield """
        Rows with large numbers have large scores: "with" goes better with "journey" than with
        itself.  That is fine.  We do not ask how alike two words are, but how much one of them
        should count for the other.

        So we turn the scores of a row into shares, which are positive and add up to 1.  Scores can
        be negative, so we cannot just divide them by their sum.  We first take e (2.718...) to the
        power of each score, which is always positive, and then divide by the sum of these powers.
        This is called softmax.  For "journey":"""
    yield Table('Softmax of the row of "journey"',
                np.stack([scores.data[1], powers, weights.data[1]]),
                ["score", "e to its power", "divided by their sum"], NAMES)
    yield "Each row in its turn gives a row of shares.  They are called attention weights."
    yield trace.table("Weights", weights, NAMES, NAMES, LOOKS)
    yield """
        Finally, each word gets a new row: the mean of all embeddings, in which each counts with
        its weight.  For "journey", it is 0.1385 times the row of "Your", plus 0.2379 times its
        own row, and so on.  The new row also holds something of the other words.  It is called the
        context vector."""
    yield trace.table("Context vectors", context, NAMES, CHANNELS, HOLDS)
    yield """
        These six rows are much alike, because all weights lie between 0.09 and 0.24.  And a
        model could learn nothing here except the embeddings.  The next station adds that."""
    yield Question(
        """The table of scores is symmetric: the score of "journey" and "starts" is the score of
        "starts" and "journey".  Is the table of weights symmetric as well?""",
        f"""No.  Both scores are {scores.data[1, 2]:.4f}.  But softmax divides by the sum of the
        powers of a row, and the rows have different sums.  So "journey" gives "starts" a weight
        of {weights.data[1, 2]:.4f}, and "starts" gives "journey" {weights.data[2, 1]:.4f}.""")


@station("Queries, keys and values", minutes=12)
def roles():
    journey, (w_query, w_key, w_value) = single(WORDS[1]), map(single, (W_QUERY, W_KEY, W_VALUE))
    head, x = published_head(), single(WORDS)
    with Trace() as trace:
        query = journey @ w_query
        key = journey @ w_key
        value = journey @ w_value
        queries, keys, values = head.query(x), head.key(x), head.value(x)
        scores = queries @ keys.T
    yield """
        In the first station a word had one row for everything.  But a word plays three roles.  It
        looks for other words, it is found by them, and it hands something over to those who found
        it.  These roles differ: "starts" looks for what starts, and should find "journey";
        "journey" need not look for "starts".

        So each word gets three rows: a query (what it looks for), a key (by what it is found) and
        a value (what it hands over).  A head of attention makes them from the embedding.  It has a
        matrix for each role, which is a table of learnt numbers:"""
    rows = [f"channel {c}" for c in CHANNELS]
    for name, matrix in (("queries", W_QUERY), ("keys", W_KEY), ("values", W_VALUE)):
        yield Table(f"The matrix for {name}", matrix, rows, CHANNELS, digits=5)
    yield """
        The product of an embedding and a matrix has a dot product for each column.  The first
        number of the query of "journey" is

            0.55 * 0.29611 + 0.87 * 0.68856 + 0.66 * 0.13658 = 0.8520..."""
    for name, made in (("query", query), ("key", key), ("value", value)):
        yield trace.table(f'The {name} of "journey"', made, [name], CHANNELS)
    yield """
        This head looked at one word only.  For the rest of the walk we take the matrices of
        another head.  They were drawn at random, as those of every model are before it is
        trained.  Here a row of the matrix, and not a column, makes a channel; PyTorch stores
        matrices in this way, and so does minigrad."""
    for name, matrix in (("queries", QUERY_WEIGHT), ("keys", KEY_WEIGHT), ("values", VALUE_WEIGHT)):
        yield Table(f"The matrix for {name} of the second head", matrix,
                    [f"makes {c}" for c in CHANNELS], rows, digits=5)
    yield """
        A product with the whole table of embeddings makes the rows of all six words at once.
        (The line of source can also add a bias and a residual.  Here it has none.)"""
    yield trace.table("Queries", queries, NAMES, CHANNELS, HOLDS)
    yield trace.table("Keys", keys, NAMES, CHANNELS, HOLDS)._replace(line=None)
    yield trace.table("Values", values, NAMES, CHANNELS, HOLDS)._replace(line=None)
    yield """
        The scores are now the dot products of all queries and all keys.  A row belongs to a query:
        to the word that looks.  A column belongs to a key: to the word that is found."""
    yield trace.table("Scores", scores, NAMES, NAMES, LOOKS)
    one, other = scores.data[1, 2], scores.data[2, 1]
    yield Question(
        "This table of scores is not symmetric.  What has changed since the first station?",
        f"""There, both words of a pair played the same role.  Here, "journey" looks for "starts"
        with its query, and meets the key of "starts"; the score is {one:.4f}.  When "starts" looks
        for "journey", the query of "starts" meets the key of "journey", which are different rows;
        the score is {other:.4f}.""")


@station("Scores are divided by the square root of D", minutes=8)
def scaling():
    head, x = published_head(), single(WORDS)
    scores = head.query(x) @ head.key(x).T
    with Trace() as trace:
        scaled = scores / math.sqrt(3)
        weights = mg.softmax(scaled)
    rng, sizes, largest = np.random.default_rng(0), (4, 64, 1024), []
    for D in sizes:
        queries, keys = rng.standard_normal((1000, 1, D)), rng.standard_normal((1000, 6, D))
        drawn = (queries @ keys.swapaxes(1, 2))[:, 0]
        largest.append([drawn.std(), *(mg.softmax(Tensor(s)).data.max(axis=1).mean()
                                       for s in (drawn, drawn / D ** 0.5, drawn / D))])
    largest, names = np.array(largest), [f"D = {D:,}" for D in sizes]
    yield """
        D is the number of channels of a query and a key.  A score is a sum of D products, so with
        many channels scores lie far apart.  How far?  If the numbers are drawn at random, some
        products are positive and some are negative, and most of them cancel.  The sum of D such
        products is typically as large as the square root of D.

        Let us try it with 1,000 random queries and six random keys for each.  The standard
        deviation says how far numbers typically lie from their mean."""
    yield Table("How far apart the scores are", largest[:, :1], names, ["standard deviation"],
                digits=2)
    yield """
        If scores lie far apart, softmax gives nearly everything to the largest one.  Then a small
        change of a score changes hardly any weight.  But training works by small changes: it asks
        of each number whether a little more or a little less of it would make the model better.
        Here the answer would be neither, and the head would not learn.  Therefore all scores are
        divided by the square root of D:"""
    yield Table("The largest weight of six, averaged over 1,000 queries", largest[:, 1:], names,
                ["scores as they are", "divided by root D", "divided by D"], digits=2)
    yield """
        In our head D is 3."""
    yield trace.table("Scores, scaled", scaled, NAMES, NAMES, LOOKS)
    yield trace.table("Weights", weights, NAMES, NAMES, LOOKS)
    yield """
        All weights are near one sixth, 0.17.  Our embeddings and matrices have small numbers, and
        nobody has trained them.  Training would move the scores apart where that helps."""
    yield Question(
        "What happens if scores are divided by D instead of its square root?",
        f"""The last column of the table shows it: for D = 1,024 the largest weight is
        {largest[-1, -1]:.2f}, one sixth.  With many channels all scores would be close to 0, and
        all weights equal.  The head would look everywhere alike, and could choose nothing.""")


@station("The future is hidden before the softmax", minutes=9)
def masking():
    head, x = published_head(), single(WORDS)
    changed = WORDS.copy()
    changed[5] = [5, -5, 5]

    def scaled_scores(words):
        return head.query(single(words)) @ head.key(single(words)).T / math.sqrt(3)
    scores, values = scaled_scores(WORDS), head.value(x)
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
    yield trace.table("Scores with the mask", masked, NAMES, NAMES, LOOKS)
    yield """
        e to the power of minus infinity is 0.  So softmax gives a hidden word the weight 0, and
        the weights of the others add up to 1."""
    yield trace.table("Weights", weights, NAMES, NAMES, LOOKS)
    yield trace.table("Context vectors", context, NAMES, CHANNELS, HOLDS)
    yield """
        That is all of a head.  In the paper that introduced it (Vaswani and others, 2017) it is
        one formula, to which we add the mask; K^T stands for K.T.  In model/attention.py it is one
        function, attention; you will see its lines in later stations.

            softmax(Q K^T / sqrt(D) + mask) V

        Could we hide the future after the softmax, by setting its weights to 0?  Then the rows
        would no longer add up to 1.  And the future would still show: softmax has divided by a sum
        in which the hidden words took part.  We change the last word's embedding to (5, -5, 5), and
        look at the weight that "Your" gives itself:"""
    both = [scaled_scores(words) for words in (WORDS, changed)]
    yield Table('The weight of "Your" for itself',
                np.array([[mg.softmax(s + causal_mask(6)).data[0, 0] for s in both],
                          [mg.softmax(s).data[0, 0] for s in both]]),
                ["hidden before the softmax", "set to 0 after it"], ['with "step"', "changed"])
    yield """
        One can mend it by dividing each row by its sum once more.  That gives the same weights as
        the mask, in a longer way, and one that is easily forgotten."""
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


@station("Dropout on the weights", minutes=6)
def dropping():
    head, x = published_head(), single(WORDS)
    weights = mg.softmax(head.query(x) @ head.key(x).T / math.sqrt(3) + causal_mask(6))
    values = head.value(x)
    with Trace() as trace:
        first = mg.where(KEPT[0], weights / 0.8, 0.0)
        first_context = first @ values
        second = mg.where(KEPT[1], weights / 0.8, 0.0)
        second_context = second @ values
    yield """
        A model with many numbers can learn its text by heart, which does not help with a new text.
        Dropout makes that harder.  While the model is trained, some numbers are set to 0 at random,
        different ones each time, so that it cannot rely on any one of them.  Here these are
        attention weights: one in five.  The weights that are kept are divided by 0.8.

        Let us read the sentence twice.  A zero on or below the diagonal is a weight that was
        dropped; those above it are hidden by the mask, as before.  In the lines of source, KEPT
        says which weights were kept, and mg.where(condition, x, y) takes x where it holds, and else
        y."""
    yield trace.table("Weights at the first reading", first, NAMES, NAMES, LOOKS)
    yield trace.table("Context vectors at the first reading", first_context, NAMES, CHANNELS, HOLDS)
    yield trace.table("Weights at the second reading", second, NAMES, NAMES, LOOKS)
    yield trace.table("Context vectors at the second reading", second_context, NAMES, CHANNELS,
                      HOLDS)
    yield """
        At the first reading "Your" lost its only weight, and its context vector is 0.  The rows of
        one reading do not add up to 1; over many readings they do, on average.  When the model
        writes text, or when we measure how good it is, nothing is dropped."""
    kept, whole = first.data[1, 0], weights.data[1, 0]
    many = Tensor(np.full(10_000, whole))
    mean = mg.dropout(many, 0.2, np.random.default_rng(0)).data.mean()
    yield Question(
        f"""The weight of "journey" for "Your" was {whole:.4f}, and is now {kept:.4f} or 0.  Why
        are the weights that are kept made larger?""",
        f"""So that the mean stays the same.  In four of five readings the weight is {kept:.4f}, in
        one of five it is 0, and 0.8 * {kept:.4f} = {whole:.4f}.  The mean of 10,000 draws was
        {mean:.2f}.  A model that was trained with dropout therefore meets weights of the usual
        size when nothing is dropped.""")
