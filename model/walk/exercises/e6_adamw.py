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
    first = np.array([1.0, -2.0]), np.array([0.5, 0.25]), np.zeros(2), np.zeros(2)
    return [(*first, 1, 0.1, 0.9, 0.99, 1e-8, 0.0), (p, g, m, v, 2, 0.1, 0.9, 0.99, 1e-8, 0.0),
            (p, g, m, v, 3, 0.1, 0.8, 0.95, 1e-8, 0.5), (p, g, m, v, 7, 0.1, 0.8, 0.95, 0.1, 0.0),
            (p, 0 * g, 0 * m, 0 * v, 1, 0.1, 0.9, 0.99, 1e-8, 0.5),
            (*(a.astype(np.float32) for a in (p, g, m, v)), 4, 0.1, 0.9, 0.99, 1e-8, 0.1),
            (p, 1000 * g, m, v, 2, 0.1, 0.9, 0.99, 1e-8, 0.1)]


M, V = "beta1 * m + (1 - beta1) * g", "beta2 * v + (1 - beta2) * g ** 2"
M_HAT, V_HAT = "m / (1 - beta1 ** t)", "v / (1 - beta2 ** t)"
STEP, DECAY = "m_hat / (np.sqrt(v_hat) + eps)", " + weight_decay * p"
INTO_G = {f"m = {M}": f"g = g{DECAY}\n    m = {M}"}
MISTAKES = {
    "m is not corrected for its start at 0: divide by 1 - beta1^t.": {M_HAT: "m"},
    "v is not corrected for its start at 0: divide by 1 - beta2^t.": {V_HAT: "v"},
    "The correction uses t - 1; t begins at 1, and in the first step m and v have one gradient.":
        {"beta1 ** t": "beta1 ** (t - 1)", "beta2 ** t": "beta2 ** (t - 1)"},
    "The correction uses t + 1; t begins at 1, and is the number of this step.":
        {"beta1 ** t": "beta1 ** (t + 1)", "beta2 ** t": "beta2 ** (t + 1)"},
    "The correction multiplies beta by t; it should be beta to the power of t, beta ** t.":
        {"beta1 ** t": "beta1 * t", "beta2 ** t": "beta2 * t"},
    "The correction is by 1 - beta without the power t, so it is right at the first step only.":
        {"beta1 ** t": "beta1", "beta2 ** t": "beta2"},
    "beta1 and beta2 are exchanged in the correction: beta1 belongs to m, beta2 to v.":
        {"m / (1 - beta1": "m / (1 - beta2", "v / (1 - beta2": "v / (1 - beta1"},
    "The corrected m and v are returned; return m and v.": {"new, m, v": "new, m_hat, v_hat"},
    "The step goes along the gradient; go against it, so that the loss falls.": {STEP: f"-{STEP}"},
    "The weight decay has the wrong sign: it drives the weights away from 0.": {"+ wei": "- wei"},
    "The weight decay is added to the gradient (Adam with L2); in AdamW it acts on p alone.":
        INTO_G | {f"{STEP}{DECAY}": STEP},
    "The weight decay is used twice, in the gradient and on p; it acts on p alone.": INTO_G,
    "There is no weight decay.": {DECAY: ""},
    "The weight decay is not multiplied by p.": {DECAY: " + weight_decay"},
    "The weight decay is not multiplied by the learning rate.": {DECAY: f"{DECAY} / lr"},
    "The weight decay acts on p after the step; it should act on the p before it.":
        {f"p - lr * ({STEP}{DECAY})": f"(p - lr * {STEP}) * (1 - lr * weight_decay)"},
    "eps is added inside the root; it belongs outside, to the root.":
        {"v_hat) + eps": "v_hat + eps)"},
    "eps is added before v is corrected.": {"+ eps)": "+ eps / np.sqrt(1 - beta2 ** t))"},
    "eps is missing: where all gradients were 0, the step is 0 / 0.": {" + eps)": ")"},
    "The root of v is missing: divide by sqrt(v_hat) + eps.": {"np.sqrt(v_hat)": "v_hat"},
    "v averages the gradient; it should average its square.": {"g ** 2": "g"},
    "v averages the size of the gradient; it should average its square.": {"g ** 2": "abs(g)"},
    "The gradient is clipped.": {f"m = {M}": f"g = g.clip(-1, 1)\n    m = {M}"},
    "The gradient is subtracted in m; add it.": {"m + (1": "m - (1"},
    "The gradient enters m without its factor 1 - beta1.": {"(1 - beta1) * g": "g"},
    "The gradient's square enters v without its factor 1 - beta2.": {"(1 - beta2) * g": "g"},
    "beta and 1 - beta are exchanged: the old mean keeps the share beta, which is close to 1.":
        {M: "(1 - beta1) * m + beta1 * g", V: "(1 - beta2) * v + beta2 * g ** 2"},
    "beta1 and beta2 are exchanged: beta1 belongs to m, beta2 to v.":
        {"(p, g, m, v, t, lr, beta1, beta2,": "(p, g, m, v, t, lr, beta2, beta1,"},
    "The step uses the gradient itself in place of m, its running mean.": {"(m_hat / (": "(g / ("},
    "The step uses m and v as they were; update them first.":
        {f"    m = {M}\n    v = {V}\n": "", "return new, m, v": f"return new, {M}, {V}"},
    "The step is not multiplied by the learning rate.": {STEP: f"{STEP} / lr"},
    "m and v are returned in the wrong order.": {"return new, m, v": "return new, v, m"},
    "m and v are returned as they came; return the new ones.":
        {f"m = {M}": f"old = m, v\n    m = {M}", "return new, m, v": "return new, *old"},
}
