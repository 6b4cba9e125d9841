"""What losses show, in a sentence."""
import pytest

from model.look.curves import describe_comparison, describe_finding

COUNTED = {"unigram": 3.279, "bigram": 2.332, "trigram": 1.704, "4-gram": 1.414, "5-gram": 1.327}


def log(**losses):
    """The lines of a log with these validation losses: s100=1.5 is that of step 100."""
    return [[float(step[1:]), None, loss, 0.1, 0.0, 1.0] for step, loss in losses.items()]


@pytest.mark.parametrize("lines, says", [
    (log(s0=4.1, s100=1.55, s200=1.45, s300=1.4, s900=1.33, s1000=1.3, s5000=1.14),
     "After 300 steps it beats 4-grams, after 1,000 5-grams; at step 5,000 its loss is 1.140."),
    (log(s0=4.1, s1=1.6, s200=1.352),
     "After 1 step it beats trigrams, after 200 4-grams; 5-grams are 0.025 nats ahead of it at "
     "step 200."),
    (log(s0=4.1, s200=1.6),
     "After 200 steps it beats trigrams; 4-grams are 0.186 nats ahead of it at step 200."),
    (log(s0=4.1, s100=1.2), "After 100 steps it beats 5-grams; at step 100 its loss is 1.200."),
    (log(s0=1.31, s50=1.1, s90=1.11),
     "Before any step it beats 5-grams; at step 90 its loss is 1.110."),
    (log(s0=4.1, s50=1.3, s100=1.5, s150=1.6),
     "After 50 steps it beats 5-grams; since step 50 it gets worse, from 1.300 to 1.600."),
    (log(s0=4.1, s50=1.32, s100=1.33),
     "After 50 steps it beats 5-grams; at step 100 its loss is 1.330."),
    (log(s0=4.1, s26=3.5), "After 26 steps, counting characters still predicts the text better "
                           "(3.279) than the model (3.500)."),
    (log(s0=4.1), "One evaluation so far: the validation loss at step 0 is 4.100."),
    ([], "")], ids=str)
def test_describe_finding_says_which_n_grams_are_beaten_and_when(lines, says):
    assert describe_finding(lines, COUNTED) == says


def test_describe_finding_takes_the_order_of_n_grams_from_their_losses_as_on_a_short_text():
    counted = {"unigram": 2.5, "bigram": 2.0, "trigram": 2.2, "4-gram": 2.4}
    assert describe_finding(log(s0=3.0, s10=2.3, s20=2.1, s30=1.9), counted) == (
        "After 20 steps it beats trigrams, after 30 bigrams; at step 30 its loss is 1.900.")


@pytest.mark.parametrize("last, says", [
    (1.5, "In 40 steps the validation loss falls from 2.000 to 1.500."),
    (2.5, "In 40 steps the validation loss rises from 2.000 to 2.500."),
    (2.0001, "In 40 steps the validation loss stays at 2.000.")])
def test_describe_finding_says_without_n_grams_where_the_loss_goes(last, says):
    assert describe_finding(log(s0=2.0, s20=1.0, s40=last), None, "token") == says


@pytest.mark.parametrize("runs, says", [
    ({"a": log(s0=4.0, s9=2.0), "b": log(s0=4.0, s9=1.5)},
     "b has the lowest loss, 1.500; a 2.000."),
    ({"a": log(s0=4.0, s9=2.0), "b": log(s0=4.0, s9=3.0, s18=1.5)},
     "b has the lowest loss, 1.500; a 2.000.  At step 9, where all were evaluated: a 2.000, "
     "b 3.000."),
    ({"a": log(s0=4.0, s9=2.0), "b": log(s0=4.0, s7=1.5), "c": log(s0=4.0, s9=1.8)},
     "b has the lowest loss, 1.500; c 1.800, a 2.000."),
    ({"a": log(s0=4.0, s9=2.0), "b": log(s0=4.0, s9=2.0001)},
     "All of them reach the same loss, 2.000.")])
def test_describe_comparison_names_the_lowest_loss_and_compares_at_the_same_step(runs, says):
    assert describe_comparison(runs) == says
