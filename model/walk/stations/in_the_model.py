"""Stations 11 to 13: the order of words, and attention's place in a block."""
import numpy as np

import minigrad as mg
from model.variants.heads import SelfAttention
from model.layers import sinusoids
from model.transformer import Block, TransformerConfig
from model.variants.alibi import alibi_bias, alibi_slopes
from model.walk.published import KEY_WEIGHT, OUT_WEIGHT, QUERY_WEIGHT, VALUE_WEIGHT, WORDS
from model.walk.station import Question, Table, Trace, station
from model.walk.stations.one_head import (BY_CHANNEL, BY_KEY, CHANNELS, NAMES, published_head,
                                          single)
from model.walk.stations.purpose import ROWS, one_step

PLACES = [f"place {t}" for t in range(6)]


@station("The order of words", "Order", 6, read="sinusoids in model/layers.py")
def order():
    layer = SelfAttention(3, 3)
    layer.load_state_dict(published_head().state_dict())
    in_order = layer(single(WORDS)).data
    reverse = layer(single(WORDS[::-1])).data
    yield """
        A dot product does not know where in the sentence its two words stand.  This is the context
        vector of "journey", without a mask, when the sentence is reversed:"""
    yield Table('The context vector of "journey"', np.stack([in_order[1], reverse[4]]),
                ["Your journey starts with one step", "step one with starts journey Your"],
                CHANNELS)
    yield """
        It is the same.  For attention, a sentence is a bag of words.  So a model must be told the
        places.  In GPT-2 each place has an embedding as well, which is learnt, and which is added
        to that of the word.

        The first transformer added sines and cosines of the place, which need not be learnt.
        Angles are in radians here: a full turn has 2 pi of them, so a radian is about 57 degrees.
        Each pair of channels is like the hand of a clock.  From one place to the next, the first
        hand turns by 1 radian.  Each further hand is slower; the slowest of many turns by about
        1/10,000 of a radian.  Four channels are two hands, and the second turns by 1/100:"""
    yield Table("Sines and cosines of the places", sinusoids(6, 4), PLACES,
                ["`sin t`", "`cos t`", "`sin t/100`", "`cos t/100`"], axes=("place", "channel"))
    word = ROWS[3]
    place = sinusoids(6, 4)[3]
    yield 'Now we put the word "creature" of station 2 at place 3:'
    yield Table("A word and its place", np.stack([word, place, word + place]),
                ["creature", "place 3", "sum"], ["1", "2", "3", "4"])
    yield """
        The arrow of the word has turned by 28 degrees: place and meaning mix."""
    yield Question(
        """In "Your step step", the same word stands twice.  Are the context vectors of the two
        equal, in a causal head that is not told the places?""",
        """No.  The first "step" sees "Your" and itself.  The second one sees another "step" as
        well, so "Your" gets a smaller share of its weights.  So the mask tells a little about
        places.  But the words before could change places with each other, and in this head
        nothing would change.""")


@station("Places in the scores", "Rotary", 7, read="rotate in minigrad/formulas.py")
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
        with the place.  Turning leaves the length of a row as it is.  So the dot product of two
        hands depends on the angle between them alone, and that is the difference of their places.
        Here are six equal rows of two channels, (1, 0).  The one at place `t` is turned by `t`
        radians."""
    yield trace.table("Turned", turned, PLACES, ["1", "2"], BY_CHANNEL)
    yield trace.table("Scores of equal words, by place", scores, PLACES, PLACES, BY_KEY)
    yield """
        All entries of a diagonal are equal: they depend on the distance.  With one hand alone the
        score is larger at the distance 5 than at 3.  But a head has many pairs of channels, each
        with a speed of its own, and together they tell the distance.

        ALiBi is simpler.  It lowers each score by a number that grows with the distance, with a
        slope of its own for each head.  A head with the slope 1/16 adds this to its scores:"""
    yield Table("Bias by distance", bias, PLACES, PLACES, axes=BY_KEY)
    yield Question(
        """A model with learnt places was trained on texts of 256 words.  Which of the ways above
        can also be used on a longer text?""",
        """Sines and cosines, rotary positions and ALiBi are formulas: they have numbers for every
        place.  A learnt place that was never trained has no useful numbers.""")


@station("A block", "Block", 12, read="Block in model/transformer.py")
def block():
    layer = Block(TransformerConfig(vocab_size=6, n_head=3, n_embd=3), np.random.default_rng(1))
    layer.attention.qkv.weight.data[...] = np.concatenate(
        [QUERY_WEIGHT, KEY_WEIGHT, VALUE_WEIGHT])
    layer.attention.out.weight.data[...] = OUT_WEIGHT
    for p in layer.mlp.parameters():
        p.data *= 25
    x = single(WORDS)
    with Trace() as trace:
        middle = x + layer.attention(layer.norm1(x))
        output = middle + layer.mlp(layer.norm2(middle))
    other = layer(single(WORDS[[4, 1]]))
    first = trace.by("layer_norm", 0)
    second = trace.by("layer_norm", 1)
    yield """
        A block is attention, and after it a small network, the MLP, with a norm before each.

        The norm subtracts from a word's row its mean, and divides it by its standard deviation, so
        that no word is too loud.  (0.00001 is added to its square, in case it is 0.)  The MLP works
        on each word by itself: a matrix makes four times as many channels, a curve (GELU) keeps the
        positive numbers and brings the negative ones close to 0, and a second matrix returns to the
        usual channels.

        What each part finds is added to the word's row.  The row itself is never replaced, so what
        an earlier block found remains for the later ones.  It is called the residual stream.  Here
        is "journey" in a block with our three heads, and an MLP with random numbers:"""
    yield Table('"journey" in a block', np.stack([a[1] for a in (
        x.data, first, middle.data - x.data, middle.data, second, output.data - middle.data,
        output.data, other.data)]),
        ["x, its embedding", "norm of x", "attention finds", "x + that", "norm of the sum",
         "the MLP finds", "the output", 'output in "one journey"'], CHANNELS)
    yield """
        In "one journey" the same embedding has another output (last row): the context is in it.

        A model is a table of embeddings, some blocks one after another, a last norm, and the table
        again: the dot product of a word's row with each embedding is the score of that word to
        come next, and softmax makes probabilities of the scores.  `python train.py --recipe gpt2`
        trains four such blocks of 128 channels, on letters instead of words.  (Its other recipe,
        modern, has another norm, another curve and rotary positions.)"""
    yield from one_step(NAMES)
    yield Question(
        "Which parts of a block let one word know of another?",
        """Only attention.  Norm and MLP work on each row by itself, and so do the embeddings and
        the output.  Without attention, a model could learn little more than which word follows
        which.""")
