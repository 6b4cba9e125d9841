"""Exercise 0: reverse mode, one number at a time.

A program computes y from a few numbers.  How fast does y change with each of
them?  Reverse mode finds all these derivatives in one pass, from y backwards.
minigrad does it with arrays; here you write it for single numbers.  Each result
keeps its parents, the Values that it is made from, and its derivative by each:

    z = x + y        dz/dx = 1        dz/dy = 1
    z = x * y        dz/dx = y        dz/dy = x
    z = tanh(x)      dz/dx = 1 - z^2

y.backward() begins with the gradient of y by itself, 1.  Each Value takes its
gradient times its derivative by a parent (the chain rule), and adds that to the
gradient of the parent.  Before that, its own gradient must be complete: all
Values that are made from it have added their parts.

For example, a is 3, c = a * a and y = c * a.  First y adds 3 to the gradient of
c, and 9 to that of a.  Then c adds 3 * 3 to that of a twice, once for each
factor.  That makes 27, which is 3 a^2, the derivative of a^3.

Write the four methods below, and try  y.backward()  on Values of your own.

Hints.  List the Values so that each stands behind its parents, and go through
the list from its end.  After 30 steps y = y + y there are a billion ways from y
to the first Value; visit each Value once.  A second call of backward begins
anew, with gradients of 0.
"""
import math


class Value:
    """A number, and how it was made.

    data : the number      grad : d(y)/d(this), after y.backward()
    parents : Values       derivatives : a number for each parent, d(this)/d(parent)
    """

    def __init__(self, data, parents=(), derivatives=()):
        self.data, self.grad = data, 0.0
        self.parents, self.derivatives = parents, derivatives

    def __add__(self, other):
        """Return self + other, a new Value; other is a Value too."""
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other):
        """Return self * other, a new Value; other is a Value too."""
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def tanh(self):
        """Return the hyperbolic tangent of self, a new Value."""
        z = math.tanh(self.data)
        return Value(z, (self,), (1 - z * z,))

    def backward(self):
        """Set grad of self, and of each Value that it is made from, to d(self)/d(this Value)."""
        order, seen = [], set()

        def visit(value):
            if value not in seen:
                seen.add(value)
                value.grad = 0.0
                for parent in value.parents:
                    visit(parent)
                order.append(value)
        visit(self)
        self.grad = 1.0
        for value in reversed(order):
            for parent, derivative in zip(value.parents, value.derivatives):
                parent.grad += value.grad * derivative


def cases(rng):
    programs = [
        "y = a + b", "y = a * b", "y = c.tanh()", "y = a * a", "d = a * b; y = d * c",
        "d = a * b; y = a * d * d.tanh()",
        "d = a * b; y = d * a; d.backward()",
        "d = Value(3.0); y = a * d + d",
        "y = (a * Value(1000.0)).tanh()",
        "y = a; for _ in range(30): y = y * c + y * c"]
    for length in range(3, 12, 2):
        names = ["a", "b", "c"]
        statements = []
        for name in [*"defghijklmn"[:length], "y"]:
            p, q = rng.permutation([names[-1], rng.choice(names)])
            statements.append(f"{name} = {p} {rng.choice(['+', '*'])} {q}.tanh()")
            names.append(name)
        programs.append("; ".join(statements))
    programs.append("d = (Value(0.7978845608028654) * (c + Value(0.044715) * c * c * c)).tanh(); "
                    "y = Value(0.5) * (c + c * d)")
    return [(f"{program}; y.backward()", 3.0, -2.0, 0.5) for program in programs]
