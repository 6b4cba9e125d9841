"""Stations 11 to 13: the order of words, and attention's place in a block."""
import numpy as np

import minigrad as mg
from model.variants.heads import SelfAttention
from model.layers import alibi_bias, alibi_slopes, sinusoids
from model.transformer import Block, Transformer, TransformerConfig
from model.walk.published import KEY_WEIGHT, OUT_WEIGHT, QUERY_WEIGHT, VALUE_WEIGHT, WORDS
from model.walk.station import Question, Table, Trace, station
from model.walk.stations.one_head import CHANNELS, HOLDS, LOOKS, published_head, single

PLACES = [f"place {t}" for t in range(6)]


@station("The order of words", minutes=6)
def order():
    layer = SelfAttention(3, 3)
    layer.load_state_dict(published_head().state_dict())
    in_order, reverse = layer(single(WORDS)).data, layer(single(WORDS[::-1])).data
    yield """
        A dot product does not know where in the sentence its two words stand.  We reverse the
        sentence, and look at the context vector of "journey" without a mask:"""
    yield Table('The context vector of "journey"', np.stack([in_order[1], reverse[4]]),
                ["Your journey starts with one step", "step one with starts journey Your"],
                CHANNELS)
    yield """
        It is the same.  For attention, a sentence is a bag of words.  So a model must be told the
        places.  The simplest way: each place has an embedding as well, which is learnt, and which
        is added to that of the word.  GPT-2 does so.

        The first transformer added sines and cosines of the place, which need not be learnt.  Each
        pair of channels has a speed of its own, as the hands of a clock have: from 1 down to nearly
        1/10,000, where there are many.  With four channels, the first pair has the speed 1, and the
        second 1/100:"""
    yield Table("Sines and cosines of the places", sinusoids(6, 4), PLACES,
                ["sin t", "cos t", "sin t/100", "cos t/100"], axes=("place", "channel"))
    yield Question(
        """In "Your step step", the same word stands twice.  Are the context vectors of the two
        equal, in a causal head that is not told the places?""",
        """No.  The first "step" sees "Your" and itself.  The second one sees another "step" as
        well, so "Your" gets a smaller share of its weights.  So the mask tells a little about
        places.  But the words before could change places with each other, and in this head
        nothing would change.""")


@station("Places in the scores", minutes=7)
def distances():
    same = single(np.tile([1.0, 0.0], (6, 1)))
    with Trace() as trace:
        turned = mg.rotary(same, 1, 2)
        scores = turned @ turned.T
    bias = alibi_bias(alibi_slopes(2)[:1], 6)[0]
    yield """
        What counts for two words is how far apart they are.  So newer models put the places into
        the scores.

        Rotary positions turn queries and keys like the hand of a clock, by an angle that grows
        with the place.  The dot product of two hands depends on the angle between them alone, and
        that is the difference of their places.  Here are six equal rows of two channels, (1, 0).
        The one at place t is turned by t radians (a radian is about 57 degrees)."""
    yield trace.table("Turned", turned, PLACES, ["1", "2"], HOLDS)
    yield trace.table("Scores of equal words, by place", scores, PLACES, PLACES, LOOKS)
    yield """
        All entries of a diagonal are equal: they depend on the distance.  With one hand
        alone the score need not fall with the distance: it is larger at 5 than at 3.  A head has
        many pairs of channels, each with a speed of its own, and together they tell.

        ALiBi is simpler.  It lowers each score by a number that grows with the distance, with a
        slope of its own for each head.  A head with the slope 1/16 adds this to its scores:"""
    yield Table("Bias by distance", bias, PLACES, PLACES, axes=LOOKS)
    yield Question(
        """A model with learnt places was trained on texts of 256 words.  Which of the ways above
        can also be used on a longer text?""",
        """Sines and cosines, rotary positions and ALiBi are formulas: they have numbers for every
        place.  A learnt place that was never trained has no useful numbers.  Whether a model is
        still good far beyond what it was trained on is another matter, and has to be measured.""")


@station("A block", minutes=10)
def block():
    layer = Block(TransformerConfig(vocab_size=6, n_head=3, n_embd=3), np.random.default_rng(1))
    layer.attention.qkv.weight.data[...] = np.concatenate(
        [QUERY_WEIGHT, KEY_WEIGHT, VALUE_WEIGHT])
    layer.attention.out.weight.data[...] = OUT_WEIGHT
    for p in layer.mlp.parameters():
        p.data *= 25
    x = single(WORDS)
    with Trace() as trace:
        middle = layer.attention(layer.norm1(x), residual=x)
        output = layer.mlp(layer.norm2(middle), residual=middle)
    first, second = trace.by("layer_norm", 0), trace.by("layer_norm", 1)
    yield """
        A block is attention, and after it a small network, the MLP, with a norm before each.

        The norm subtracts from a word's row its mean, and divides it by its standard deviation, so
        that no word is too loud.  (0.00001 is added to the square of the standard deviation, in
        case it is 0.)  The MLP works on each word by itself: a matrix makes four times as many
        channels, a curve (GELU) keeps the positive numbers and brings the negative ones close to
        0, and a second matrix returns to the usual channels.

        What each part finds is added to the word's row.  The row itself is never replaced, so what
        an earlier block found remains for the later ones.  This growing row is called the residual
        stream.  Here is "journey" on its way through a block with our three heads, and an MLP with
        random numbers:"""
    yield Table('"journey" in a block', np.stack([a[1] for a in (
        x.data, first, middle.data - x.data, middle.data, second, output.data - middle.data,
        output.data)]),
        ["x, its embedding", "norm of x", "attention finds", "x + that", "norm of the sum",
         "the MLP finds", "the output"], CHANNELS)
    yield """
        A model is a table of embeddings, some blocks one after another, a last norm, and the table
        again: the dot product of a word's row with each embedding is the score of that word to
        come next, and softmax makes probabilities of the scores.  python train.py trains four
        blocks of 128 channels, on letters instead of words.

        What does a block do to the meaning of a word?  A small model has embeddings of its own.
        "journey" stands at the second place of two sentences.  Before the first block, its row
        knows nothing of the words around it.  After it, it does:"""
    model = Transformer(TransformerConfig(vocab_size=6, block_size=6, n_layer=2, n_head=1,
                                          n_embd=3), seed=1)
    for p in model.parameters():
        p.data *= 20 if p.ndim == 2 else 1          # so that four digits show it
    rows = []
    for sentence in ([0, 1], [4, 1]):
        ids = np.array(sentence)
        rows.append([model.embed(ids).data[1], *(x.data[1] for _, x in model.layers(ids))])
    yield Table('"journey" in a model', np.stack(rows, axis=1).reshape(6, 3),
                [f'{when}, "{word} journey"'
                 for when in ("before the first block", "after the first", "after the second")
                 for word in ("Your", "one")], CHANNELS)
    yield Question(
        "Which parts of a block let one word know of another?",
        """Only attention.  Norm and MLP work on each row by itself, and so do the embeddings and
        the output.  Without attention, a model could learn little more than which word follows
        which.""")
