"""Iterative refinement, GMRES and CG by loops of scalar operations in exact rationals, each rounded
by a rule of oracle_linalg. The module shares no code with the implementation."""

from __future__ import annotations

import oracle_linalg
from oracle_linalg import divide, dot, root
from oracle_sums import plus, times
from rationals import Fraction


def power_below(goal, size, open_end=False):
    """Return the largest power of two p with ``p size <= goal``, or ``< goal``."""
    p = Fraction(1)
    while size and (p * size > goal or (open_end and p * size == goal)):
        p /= 2
    while size and (2 * p * size < goal or (not open_end and 2 * p * size == goal)):
        p *= 2
    return p


def largest(values):
    return max(abs(Fraction(v)) for v in values)


def rounded(rule, table):
    return [[rule.round(x) for x in row] for row in table]


class Factors:
    """LU or Cholesky factors of the squeezed matrix in a format."""

    def __init__(self, a, rule, best, symmetric=False):
        n = len(a)
        if symmetric:
            self.left = []
            for i in range(n):
                p = Fraction(1)
                while p * p * a[i][i] >= 1:
                    p /= 2
                while 4 * p * p * a[i][i] < 1:
                    p *= 2
                self.left.append(p)
            self.right = list(self.left)
        else:
            self.left = [power_below(1, largest(row), open_end=True) for row in a]
            rows = [[p * x for x in row] for p, row in zip(self.left, a, strict=True)]
            columns = zip(*rows, strict=True)
            self.right = [power_below(1, largest(column), open_end=True) for column in columns]
        scaled = [[self.left[i] * a[i][j] * self.right[j] for j in range(n)] for i in range(n)]
        mu = power_below(best, max(map(largest, scaled)))
        self.left = [mu * p for p in self.left]
        self.largest = mu * max(map(largest, scaled))
        table = rounded(rule, [[mu * x for x in row] for row in scaled])
        self.unit = not symmetric
        if symmetric:
            self.lower, info = oracle_linalg.cholesky(table, rule)
            assert not info
            self.upper = [list(row) for row in zip(*self.lower, strict=True)]
            self.rows = list(range(n))
        else:
            self.lower, self.rows, _ = oracle_linalg.lu(table, rule)
            self.upper = self.lower

    def solve(self, v, rule):
        """Return the solution by the factors, every step rounded by a rule."""
        v = [self.left[i] * v[i] for i in self.rows]
        p = power_below(min(Fraction(1), self.largest), largest(v))
        v = [[rule.round(p * x)] for x in v]
        lower, upper = rounded(rule, self.lower), rounded(rule, self.upper)
        y = oracle_linalg.substitute(lower, v, rule, upper=False, unit=self.unit)
        x = oracle_linalg.substitute(upper, y, rule, upper=True)
        return [s * row[0] / p for s, row in zip(self.right, x, strict=True)]


class Vectors:
    """Operations on lists, each rounded by a rule."""

    def __init__(self, rule):
        self.rule = rule

    def dot(self, x, y):
        return dot(list(zip(x, y, strict=True)), self.rule)

    def norm(self, x):
        return self.rule.round(root(self.dot(x, x)))

    def over(self, x, y):
        return self.rule.round(divide(x, y))

    def add(self, x, c, y):
        """Return ``x + c y``, the product and the sum rounded."""
        r = self.rule.round
        return [r(plus(a, r(times(c, b)))) for a, b in zip(x, y, strict=True)]


def gmres(operator, b, rule, steps):
    """Return x after so many steps of modified Gram-Schmidt and rotations."""
    w, r = Vectors(rule), rule.round
    first = w.norm(b)
    basis, columns, rest, rotations = [[w.over(x, first) for x in b]], [], [first], []
    for k in range(steps):
        image, column = operator(basis[k]), []
        for v in basis:
            column.append(w.dot(v, image))
            image = w.add(image, -column[-1], v)
        column.append(w.norm(image))
        for i, (c, s) in enumerate(rotations):
            x, y = column[i], column[i + 1]
            column[i] = r(r(c * x) + r(s * y))
            column[i + 1] = r(r(c * y) - r(s * x))
        x, y = column[k], column[k + 1]
        swapped = abs(y) > abs(x)
        ratio = w.over(x, y) if swapped else w.over(y, x)
        c = w.over(Fraction(1), r(root(r(1 + r(ratio * ratio)))))
        s = r(c * ratio)
        c, s = (s, c) if swapped else (c, s)
        column[k] = r(r(c * x) + r(s * y))
        rest[k:] = [r(c * rest[k]), -r(s * rest[k])]
        rotations.append((c, s))
        columns.append(column)
        basis.append([w.over(x, y) for x in image])
    upper = [[columns[j][i] if j >= i else Fraction(0) for j in range(steps)] for i in range(steps)]
    y = oracle_linalg.substitute(upper, [[x] for x in rest[:steps]], rule, upper=True)
    return [dot([(basis[k][i], y[k][0]) for k in range(steps)], rule) for i in range(len(b))]


def cg(multiply, solve, b, rule, steps):
    """Return x after so many steps."""
    w = Vectors(rule)
    x, residual = [Fraction(0)] * len(b), b
    z = solve(b)
    direction, old = z, w.dot(b, z)
    for _ in range(steps):
        image = multiply(direction)
        alpha = w.over(old, w.dot(direction, image))
        x = w.add(x, alpha, direction)
        residual = w.add(residual, -alpha, image)
        z = solve(residual)
        new = w.dot(residual, z)
        direction = w.add(z, w.over(new, old), direction)
        old = new
    return x


def refine(a, b, find_correction, working, residual, steps):
    """Return the first solution, and x after each of so many corrections.

    ``find_correction`` takes the scaled residual, rounded to ``working``.
    """
    n = len(b)
    x, solutions = [Fraction(0)] * n, []
    left, right = rounded(residual, a), [residual.round(y) for y in b]
    for _ in range(steps + 1):
        held = [residual.round(y) for y in x]
        r = [residual.subtract(right[i], list(zip(left[i], held, strict=True))) for i in range(n)]
        p = power_below(1, largest(r))
        d = find_correction([working.round(p * y) for y in r])
        x = [working.round(plus(y, working.round(z / p))) for y, z in zip(x, d, strict=True)]
        solutions.append(x)
    return solutions
