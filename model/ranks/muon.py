"""Muon's matrices shared out among ranks."""
import minigrad as mg
from model.processes import Ranks


class SharedMuon(mg.Muon):
    """Muon, of which each rank steps some of the matrices and sends them to the others.

    All ranks have the same gradients before a step, and the same weights and state after it: those
    of `mg.Muon`, to the last bit.
    """

    def __init__(self, ranks: Ranks, *args, **settings) -> None:
        super().__init__(*args, **settings)
        self.ranks = ranks

    def step_matrices(self, matrices: list[tuple]) -> None:
        shares = shared_out([p.size * min(p.shape) for p, *_ in matrices], self.ranks.size)
        super().step_matrices([matrices[i] for i in shares[self.ranks.number]])
        self.ranks.exchange([[a for i in share for a in (matrices[i][0], matrices[i][2])]
                             for share in shares])


def shared_out(costs: list[int], size: int) -> list[list[int]]:
    """Share out tasks of these costs among `size` ranks: the costliest first, each to the rank that
    has the least to do.  Return the numbers of each rank's tasks."""
    shares, loads = [[] for _ in range(size)], [0] * size
    for i in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        rank = loads.index(min(loads))
        shares[rank].append(i)
        loads[rank] += costs[i]
    return shares
