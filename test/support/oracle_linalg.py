"""Factorisations by loops of scalar operations in exact rationals, each rounded to a format. The
module shares no code with the implementation.

Values are those of oracle_sums. A rule is how one element's sum is made."""

from __future__ import annotations

import math

from oracle_sums import exact_sum, finite, negative, plus, round_value, sign, step_sum, times
from rationals import Fraction


def divide(x, y):
    if finite(x) and finite(y):
        return times(x, 1 / y)
    if finite(x):
        return times(x, 0.0)
    return sign(x) * sign(y) if finite(y) else math.nan


class EveryStep:
    """``start - a b - c d - ...``, each product and each difference rounded."""

    def __init__(self, spec, mode="nearest_even"):
        self.spec, self.mode = spec, mode

    def round(self, x):
        return round_value(self.spec, x, self.mode)

    def plus(self, x, y):
        total = plus(x, y)
        zero_below = self.mode == "down" and total == 0 and (negative(x) or negative(y) or x != 0)
        return -0.0 if zero_below else total  # IEEE 754-2019, section 6.3

    def subtract(self, start, pairs):
        for x, y in pairs:
            start = self.round(self.plus(start, -self.round(times(x, y))))
        return start


class Exact(EveryStep):
    """The same, rounded once."""

    def subtract(self, start, pairs):
        return self.round(exact_sum([times(-x, y) for x, y in pairs], start))


class InAccumulator(EveryStep):
    """The same by steps in another format; an accumulator begins at ``start``."""

    def __init__(self, spec, accumulator):
        super().__init__(spec)
        self.accumulator = accumulator

    def subtract(self, start, pairs):
        pairs = [(-x, y) for x, y in pairs]
        return self.round(step_sum(pairs, self.spec, self.accumulator, start=start))


def magnitude(x):
    return math.inf if x != x else abs(x)


def first_largest(candidates):
    """Return the place of the first of the largest magnitudes."""
    return max(candidates, key=lambda place: magnitude(candidates[place]))  # max takes the first


def lu(matrix, rule, pivot="partial"):
    """Return L and U in one matrix, and the orders of rows and columns."""
    m, n = len(matrix), len(matrix[0])
    a = [list(row) for row in matrix]
    rows, columns = list(range(m)), list(range(n))
    done = [[None] * n for _ in range(m)]

    def element(i, j, terms):
        return rule.subtract(a[i][j], [(done[i][k], done[k][j]) for k in range(terms)])

    for k in range(min(m, n)):
        row, column = k, k
        if pivot == "partial":
            row = first_largest({i: element(i, k, k) for i in range(k, m)})
        elif pivot == "complete":
            row, column = first_largest(
                {(i, j): element(i, j, k) for i in range(k, m) for j in range(k, n)}
            )
        for table in (a, done, rows):
            table[k], table[row] = table[row], table[k]
        for line in (*a, *done, columns):
            line[k], line[column] = line[column], line[k]
        for j in range(k, n):
            done[k][j] = element(k, j, k)
        for i in range(k + 1, m):
            value = element(i, k, k)
            done[i][k] = rule.round(divide(value, done[k][k])) if done[k][k] else value
    return done, rows, columns


def substitute(matrix, right, rule, upper, unit=False):
    """Return x of ``matrix x = right``, a list for each column of ``right``."""
    n = len(matrix)
    order = list(range(n))[::-1] if upper else list(range(n))
    results = []
    for column in zip(*right, strict=True):
        x = [None] * n
        for place, i in enumerate(order):
            value = rule.subtract(column[i], [(matrix[i][j], x[j]) for j in order[:place]])
            x[i] = value if unit else rule.round(divide(value, matrix[i][i]))
        results.append(x)
    return [list(row) for row in zip(*results, strict=True)]


def root(x):
    """Return the square root of a value; of an irrational one, a number so close to it that every
    rounding is the same."""
    if not finite(x):
        return x if x == math.inf else math.nan
    if x <= 0:
        return x if x == 0 else math.nan
    numerator, denominator = Fraction(x).as_integer_ratio()
    scaled = numerator * denominator << 400
    whole = math.isqrt(scaled)
    return Fraction(2 * whole + (whole * whole != scaled), denominator << 201)


def cholesky(matrix, rule):
    """Return the rows of L up to the first pivot that is not positive, and info."""
    n = len(matrix)
    lower = [[Fraction(0)] * n for _ in range(n)]
    for j in range(n):
        values = [
            rule.subtract(matrix[i][j], [(lower[i][k], lower[j][k]) for k in range(j)])
            for i in range(j, n)
        ]
        if not values[0] > 0:
            return lower, j + 1
        pivot = rule.round(root(values[0]))
        for i, value in enumerate(values):
            lower[j + i][j] = rule.round(divide(value, pivot)) if i else pivot
    return lower, 0


def ldl(matrix, rule):
    """Return L and D."""
    n = len(matrix)
    lower = [[Fraction(0)] * n for _ in range(n)]
    before = [[None] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            terms = [(lower[i][k], before[j][k]) for k in range(j)]
            before[i][j] = rule.subtract(matrix[i][j], terms)
            lower[i][j] = rule.round(divide(before[i][j], before[j][j])) if i > j else Fraction(1)
    return lower, [before[j][j] for j in range(n)]


def dot(pairs, rule):
    """Return an inner product, each product and each sum rounded."""
    total = Fraction(0)
    for x, y in pairs:
        total = rule.round(rule.plus(total, rule.round(times(x, y))))
    return total


def qr(matrix, rule):
    """Return Q and R by Householder's reflectors."""
    m, n = len(matrix), len(matrix[0])
    r = [list(row) for row in matrix]
    q = [[Fraction(int(i == j)) for j in range(min(m, n))] for i in range(m)]
    reflectors = []

    def reflect(a, i, columns, v, tau):
        for j in columns:
            inner = dot([(v[k], a[i + k][j]) for k in range(len(v))], rule)
            t = rule.round(times(inner, tau))
            for k in range(len(v)):
                a[i + k][j] = rule.subtract(a[i + k][j], [(v[k], t)])

    for i in range(min(m, n)):
        x = [row[i] for row in r[i:]]
        if any(x[1:]):
            norm = rule.round(root(dot([(y, y) for y in x], rule)))
            beta = norm if x[0] < 0 else -norm
            tau = rule.round(divide(rule.round(plus(beta, -x[0])), beta))
            below = rule.round(plus(x[0], -beta))
            v = [Fraction(1), *(rule.round(divide(y, below)) for y in x[1:])]
            r[i][i] = beta
            reflect(r, i, range(i + 1, n), v, tau)
            reflectors.append((i, v, tau))
        for row in r[i + 1 :]:
            row[i] = Fraction(0)
    for i, v, tau in reversed(reflectors):
        reflect(q, i, range(i, min(m, n)), v, tau)
    return q, r[: min(m, n)]
