"""A third published example, which the stations leave out: one head, from matrices to a context."""
import numpy as np
import pytest

from minigrad import Tensor
from model.variants.heads import SelfAttention
from model.walk.published import WORDS
from tests.kit import both_types

pytestmark = pytest.mark.late
# Its matrices for queries, keys and values, by columns: the query of a word is word @ QUERY.
QUERY = [[0.29611194, 0.51656228, 0.25167072],
         [0.68855679, 0.07397246, 0.86652195],
         [0.13657987, 0.10247904, 0.18405646]]
KEY = [[0.72644675, 0.31525391, 0.68710667],
       [0.07563531, 0.19663817, 0.31641197],
       [0.40174013, 0.11856830, 0.82739538]]
VALUE = [[0.38208443, 0.66049385, 0.85357177],
         [0.59315300, 0.63672537, 0.98262936],
         [0.27449530, 0.65837562, 0.27754194]]


@both_types
def test_a_head_gives_journey_the_printed_query_key_value_and_context(dtype):
    head = SelfAttention(3, 3, dtype=dtype)
    words = Tensor(WORDS.astype(dtype))
    head.load_state_dict({f"{role}.weight": np.array(matrix, dtype).T for role, matrix in
                          (("query", QUERY), ("key", KEY), ("value", VALUE))})
    printed = {"query": "0.8520 0.4161 1.0138", "key": "0.7305 0.4227 1.1993",
               "value": "0.9074 1.3518 1.5075"}
    for role, numbers in printed.items():
        made = getattr(head, role)(words).data[1]
        assert " ".join(f"{x:.4f}" for x in made) == numbers
    assert " ".join(f"{x:.4f}" for x in head(words).data[1]) == "0.6864 1.0577 1.1389"
