"""What ranks cannot do is refused before a run."""
import pytest

from model.training.arguments import problems_of_ranks
from model.training.settings import Settings


@pytest.mark.parametrize("settings, size, says", [
    (dict(batch_size=12, reduce="exact"), 5, "--reduce exact takes a number of ranks that divides "
                                             "--batch_size 12, and 5 do not"),
    (dict(batch_size=12), 5, ""), (dict(batch_size=12, reduce="exact"), 4, ""),
    (dict(explain=True), 1, ""), (dict(explain=True), 2, "--explain goes through a step of one")])
def test_settings_that_do_not_go_with_the_number_of_ranks_are_named(settings, size, says):
    found = problems_of_ranks(Settings(**settings), size)
    assert [line[:len(says)] for line in found] == [says] * bool(says)
