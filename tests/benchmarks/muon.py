"""minigrad's Muon on PyTorch: the same steps, of all matrices of a shape in one batch.

Nothing of minigrad is loaded, and what is computed how often is the same (see minigrad/optim.py and
minigrad/kernels/muon.py).  Shapes: N matrices, M rows, no more than K columns.
"""
import torch

A, B, C = 3.4445, -4.7750, 2.0315
TINY = 1e-7


class Muon:
    """Momentum, made orthogonal, for matrices.

    Parameters
    ----------
    matrices : each with how many of its rows are a matrix for themselves, such as (C, C, C).
    """

    def __init__(self, matrices: list[tuple[torch.nn.Parameter, tuple[int, ...]]],
                 weight_decay: float, momentum: float = 0.95, ns_steps: int = 3) -> None:
        self.matrices, self.weight_decay = matrices, weight_decay
        self.momentum, self.ns_steps = momentum, ns_steps
        self.params = _alike([(p.detach(), rows) for p, rows in matrices])
        self.momenta = [torch.zeros(len(group), *lying(group[0]).shape) for group in self.params]
        self.scales = [torch.tensor([max(1, p.shape[0] / p.shape[1]) ** 0.5 for p in group])
                       .view(-1, 1, 1) for group in self.params]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Step every matrix."""
        gradients = _alike([(p.grad, rows) for p, rows in self.matrices])
        for group, g, m, scale in zip(self.params, gradients, self.momenta, self.scales):
            g = torch.stack([lying(x) for x in g])                              # (N, M, K)
            m.mul_(self.momentum).add_(g)
            steps = orthogonalize(g.add_(m, alpha=self.momentum), self.ns_steps).mul_(lr * scale)
            torch._foreach_mul_(group, 1 - lr * self.weight_decay)
            torch._foreach_sub_(group, [step if step.shape == p.shape else step.T
                                        for step, p in zip(steps, group)])


def orthogonalize(x: torch.Tensor, steps: int) -> torch.Tensor:
    """About U V^T for each x = U S V^T: (N, M, K) -> (N, M, K)."""
    N, M, K = x.shape
    x = x / (x.flatten(1).norm(dim=1) + TINY).view(N, 1, 1)
    if 2 * K <= 3 * M:
        for _ in range(steps):
            gram = torch.bmm(x, x.mT)
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
        return x
    gram, every = torch.bmm(x, x.mT), None                                      # (N, M, M)
    for step in range(steps):       # on the gram, which takes fewer multiplications
        P = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        P.diagonal(dim1=1, dim2=2).add_(A)
        every = P if every is None else torch.bmm(P, every)
        if step < steps - 1:
            gram = torch.bmm(torch.bmm(P, gram), P)
    return torch.bmm(every, x)


def lying(x: torch.Tensor) -> torch.Tensor:
    """A matrix turned so that it has no more rows than columns."""
    return x if x.shape[0] <= x.shape[1] else x.T


def _alike(tensors):
    """Views of the sections of some tensors, in lists of one shape once they lie."""
    groups = {}
    for tensor, rows in tensors:
        for section in tensor.split(rows):
            groups.setdefault(lying(section).shape, []).append(section)
    return list(groups.values())
