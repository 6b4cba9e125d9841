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
    programs = ["y = a + b", "y = a * b", "y = c.tanh()", "y = a * a", "d = a * b; y = d * c",
                "d = a * b; y = a * d * d.tanh()", "d = a * b; y = d * a; d.backward()",
                "d = Value(3.0); y = a * d + d", "y = (a * Value(1000.0)).tanh()",
                "y = a; for _ in range(30): y = y * c + y * c"]
    for length in range(3, 12, 2):
        names, program = ["a", "b", "c"], ""
        for name in [*"defghijklmn"[:length], "y"]:
            p, q = rng.permutation([names[-1], rng.choice(names)])
            program += f"{name} = {p} {rng.choice(['+', '*'])} {q}.tanh(); "
            names.append(name)
        programs.append(program[:-2])
    return [(f"{program}; y.backward()", 3.0, -2.0, 0.5) for program in [*programs, (
        "d = (Value(0.7978845608028654) * (c + Value(0.044715) * c * c * c)).tanh(); "
        "y = Value(0.5) * (c + c * d)")]]


STEP = "parent.grad += value.grad * derivative"
LOOP = "for value in reversed(order):\n            for parent, derivative in zip"
MISTAKES = {
    "A gradient is set (=) and should be added to (+=): each use of a Value adds a part.":
        {"parent.grad +=": "parent.grad ="},
    "The Values are visited from the leaves on; begin at y.": {"in reversed(order)": "in order"},
    "A Value is visited before others that are made from it: its gradient is not complete yet.":
        {"seen.add(value)": "seen.add(value)\n                order.insert(0, value)",
         "                order.append(value)\n": ""},
    "Values are visited by their distance from y.  One that is near may be used farther away too.":
        {"visit(self)": "order = [self]\n        for value in order:\n            value.grad = 0\n"
         "            order += [p for p in dict.fromkeys(value.parents) if p not in order]",
         "in reversed(order)": "in order"},
    "A Value is visited again for each of its uses.  Visit it once, when its gradient is complete.":
        {"if value not in seen:": "if True:"},
    "x * x counts x once, as in a set or dictionary of parents; both factors count.":
        {"in zip(value.parents, value.derivatives)":
         "in dict(zip(value.parents, value.derivatives)).items()"},
    "Equal numbers are taken for one Value: tell Values apart, not their data.":
        {"value not in seen": "value.data not in seen", "seen.add(value)": "seen.add(value.data)"},
    "backward calls itself for each parent, which passes on again what it has passed on before.":
        {LOOP: LOOP.replace("for value in reversed(order)", "def send(value)"),
         STEP: f"{STEP}\n                send(parent)\n        send(self)"},
    "Each way to a Value is walked alone, and 30 doublings have a billion.  Visit each Value once.":
        {LOOP: LOOP.replace("for value in reversed(order)", "def send(value, g)"),
         STEP: "parent.grad += g * derivative\n                send(parent, g * derivative)\n"
               "        send(self, 1.0)"},
    "backward does not begin with 1, the gradient of y by itself.": {"self.grad = 1.0": "pass"},
    "backward begins with the number y; begin with 1.": {"grad = 1.0": "grad = self.data"},
    "Gradients of an earlier call of backward stay; set them to 0.": {"value.grad = 0.0": "pass"},
    "Leaves keep their gradients of an earlier call of backward; set these to 0 too.":
        {"value.grad = 0.0": "value.grad *= not value.parents"},
    "Derivatives are added without a factor: multiply by the Value's gradient (the chain rule).":
        {"value.grad * derivative": "derivative"},
    "The chain rule multiplies gradient and derivative.": {"grad * deriv": "grad + deriv"},
    "Derivatives are multiplied by data; multiply them by grad.": {"value.grad *": "value.data *"},
    "The derivatives of x * y are swapped: by x it is y, and by y it is x.":
        {"other.data, self.data": "self.data, other.data"},
    "x * y has the derivatives of x + y, 1 and 1.": {"other.data, self.data": "1.0, 1.0"},
    "x + y shares its gradient out; both sides get all of it.": {"1.0, 1.0": "0.5, 0.5"},
    "x + y changes x; make a new Value.": {"return Value(self.data + other.data, ": "self.data += "
                                           "other.data\n        return self\n        ("},
    "The derivative of tanh is 1 - z^2, of the result z, and not 1 - x^2.":
        {"1 - z * z": "1 - self.data ** 2"},
    "The derivative of tanh is 1 - z^2, with a square.": {"1 - z * z": "1 - z"},
    "The derivative of tanh is 1 - z^2; z (1 - z) is the sigmoid's.": {"1 - z * z": "z * (1 - z)"},
    "tanh by exp fails for large numbers; math.tanh does not.":
        {"math.tanh(self.data)": "1 - 2 / (math.exp(2 * self.data) + 1)"},
}
