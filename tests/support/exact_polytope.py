"""Convex polytopes by their vertices, in integers: what is cut off by a half-space is decided exactly.

The double description method (Motzkin et al. 1953; Fukuda and Prodon 1996): two vertices are the ends of an edge
exactly where no third one meets every constraint that both of them meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

Row = Sequence[
    int
]  # an affine form over the inputs, [inputs + 1] with its constant last, up to a positive factor
Vertex = tuple[int, ...]  # homogeneous: (w·x_1, …, w·x_n, w) with w > 0


@dataclass(frozen=True)
class Polytope:
    """The convex hull of `vertices`, of which none is inside the hull of the others.

    `tight` has a bit for each constraint that the vertex meets with equality, among all constraints so far; `free` is
    the dimension of the box that everything began with.
    """

    vertices: tuple[Vertex, ...]
    tight: tuple[int, ...]
    constraints: int
    free: int

    @classmethod
    def box(cls, lower: Sequence[Fraction], upper: Sequence[Fraction]) -> Polytope:
        """All points between two corners; an input whose bounds are equal is no dimension of it."""
        free = [index for index, (low, high) in enumerate(zip(lower, upper, strict=True)) if low < high]
        vertices, tight = [], []
        for ends in product((0, 1), repeat=len(free)):
            point = list(lower)
            for index, end in zip(free, ends, strict=True):
                point[index] = upper[index] if end else lower[index]
            vertices.append(homogeneous(point))
            tight.append(sum(1 << (2 * position + end) for position, end in enumerate(ends)))
        return cls(tuple(vertices), tuple(tight), 2 * len(free), len(free))

    def values(self, form: Row) -> list[int]:
        """The form at each vertex, up to positive factors."""
        return [sum(a * b for a, b in zip(form, vertex, strict=True) if a) for vertex in self.vertices]

    def range(self, form: Row) -> tuple[Fraction, Fraction]:
        """The least and the greatest value of the form, taken as it is."""
        found = [
            Fraction(value, vertex[-1])
            for value, vertex in zip(self.values(form), self.vertices, strict=True)
        ]
        return min(found), max(found)

    def split(self, values: Sequence[int]) -> tuple[Polytope | None, Polytope | None]:
        """Where a form with these values at the vertices is ≤ 0, and where it is ≥ 0; None for nothing."""
        bit = 1 << self.constraints
        tight = [old | bit if value == 0 else old for old, value in zip(self.tight, values, strict=True)]
        crossed = list(self._crossings(values))
        sides: list[Polytope | None] = []
        for sign in (1, -1):
            kept = [number for number, value in enumerate(values) if sign * value <= 0]
            vertices = [self.vertices[number] for number in kept] + [vertex for vertex, _ in crossed]
            bits = [tight[number] for number in kept] + [common | bit for _, common in crossed]
            side = Polytope(tuple(vertices), tuple(bits), self.constraints + 1, self.free)
            sides.append(side if vertices else None)
        return sides[0], sides[1]

    def at_most_zero(self, form: Row) -> Polytope | None:
        """The part where the form is ≤ 0; None where there is none."""
        values = self.values(form)
        return self if max(values) < 0 else self.split(values)[0]

    def middle(self) -> list[Fraction]:
        """The mean of the vertices: a point of the relative interior, [inputs]."""
        points = [point_of(vertex) for vertex in self.vertices]
        return [sum(column, Fraction(0)) / len(points) for column in zip(*points, strict=True)]

    def _crossings(self, values: Sequence[int]) -> Iterator[tuple[Vertex, int]]:
        """Where edges meet the form's zero, and the constraints that both ends of the edge meet."""
        below = [number for number, value in enumerate(values) if value < 0]
        above = [number for number, value in enumerate(values) if value > 0]
        for one in below:
            for other in above:
                common = self.tight[one] & self.tight[other]
                if common.bit_count() < self.free - 1:
                    continue
                holders = sum(1 for bits in self.tight if bits & common == common)
                if holders == 2:
                    ends = zip(self.vertices[one], self.vertices[other], strict=True)
                    yield _reduced([values[other] * a - values[one] * b for a, b in ends]), common


def homogeneous(point: Sequence[Fraction]) -> Vertex:
    weight = math.lcm(*(value.denominator for value in point))
    return (*(int(value * weight) for value in point), weight)


def point_of(vertex: Vertex) -> list[Fraction]:
    return [Fraction(value, vertex[-1]) for value in vertex[:-1]]


def _reduced(vertex: list[int]) -> Vertex:
    divisor = math.gcd(*vertex)
    return tuple(value // divisor for value in vertex)
