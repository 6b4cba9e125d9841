"""Exercise 6: a step of AdamW.

The gradient g says in which direction the loss grows; a step goes against it.
AdamW remembers two running means for each number p that is trained: m of the
gradient, and v of its square.  Step t (1, 2, 3, ...) is

    m = beta1 m + (1 - beta1) g            where it has been going lately
    v = beta2 v + (1 - beta2) g^2          how large its gradients are
    m_hat = m / (1 - beta1^t)              m and v begin at 0, and in the first
    v_hat = v / (1 - beta2^t)              steps they are much too small
    p = p - lr (m_hat / (sqrt(v_hat) + eps) + weight_decay p)

The p on the right is the one before the step.  weight_decay pulls p towards 0;
it does not pass through m and v, and that is what the W stands for ("decoupled
weight decay").

For example, at t = 1 with m = v = 0, m_hat is g and v_hat is g^2: without decay
each number moves by lr, whatever the size of its gradient, and only its sign
counts.  With p = 1, g = 0.5, lr = 0.1 and no decay, p becomes 0.9.

This exercise works on plain NumPy arrays and needs no gradient.  Return new
arrays, and do not change those that you were given.
"""
import numpy as np


def adamw_step(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    """Return p, m and v after step t.

    p, g, m, v : arrays of one shape      t : the number of the step, from 1
    returns : p, m, v, three new arrays of that shape
    """
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g ** 2
    m_hat = m / (1 - beta1 ** t)
    v_hat = v / (1 - beta2 ** t)
    new = p - lr * (m_hat / (np.sqrt(v_hat) + eps) + weight_decay * p)
    return new, m, v


TENSORS = False


def cases(rng):
    p, g, m = rng.standard_normal((3, 2, 3))
    v = rng.uniform(0.1, 1, (2, 3))
    none = np.zeros((2, 3))
    first = np.array([1.0, -2.0]), np.array([0.5, 0.25]), np.zeros(2), np.zeros(2)
    yield *first, 1, 0.1, 0.9, 0.99, 1e-8, 0.0
    yield p, g, m, v, 2, 0.1, 0.9, 0.99, 1e-8, 0.0
    yield p, g, m, v, 3, 0.1, 0.8, 0.95, 1e-8, 0.5
    yield p, g, m, v, 7, 0.1, 0.8, 0.95, 0.1, 0.0
    yield p, none, none, none, 1, 0.1, 0.9, 0.99, 1e-8, 0.5
    yield p, 1000 * g, m, v, 2, 0.1, 0.9, 0.99, 1e-8, 0.1
