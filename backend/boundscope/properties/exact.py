"""What a property says of one point, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from boundscope.properties.types import Box, Clause, LinearConstraint, NormBall, Property
from boundscope.protocol import Norm


def margin(constraint: LinearConstraint, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> Fraction:
    """Left side minus bound, exactly: the constraint fails where it is positive (or zero, where strict)."""
    coefficients = constraint.exact_coeffs or tuple(
        Fraction(value) for value in (*constraint.output_coeffs.tolist(), *constraint.input_coeffs.tolist())
    )
    values = [outputs[index] for index in constraint.output_indices]
    values += [inputs[index] for index in constraint.input_indices]
    total = sum((c * v for c, v in zip(coefficients, values, strict=True)), Fraction(0))
    return total - constraint.bound


def holds(clause: Clause, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> bool:
    """Whether all constraints of the clause hold at the point."""
    for constraint in clause.constraints:
        value = margin(constraint, inputs, outputs)
        if value > 0 or (constraint.strict and value == 0):
            return False
    return True


def inside(box: Box, inputs: Sequence[Fraction]) -> bool:
    """Whether the point lies in the box as written (strict bounds taken as strict), and in its ball."""
    strict_lower, strict_upper = set(box.strict_lower.tolist()), set(box.strict_upper.tolist())
    for index, value in enumerate(inputs):
        lower, upper = Fraction(box.lower_text[index]), Fraction(box.upper_text[index])
        if not lower <= value <= upper:
            return False
        if (value == lower and index in strict_lower) or (value == upper and index in strict_upper):
            return False
    return box.ball is None or inside_ball(box.ball, inputs)


def inside_ball(ball: NormBall, inputs: Sequence[Fraction]) -> bool:
    """Whether the point lies in the ball, whatever its box; exact for every norm, for no root is taken."""
    distances = [
        _distance(Fraction(lower), Fraction(upper), value)
        for lower, upper, value in zip(ball.centre_lower_text, ball.centre_upper_text, inputs, strict=True)
    ]
    if ball.norm is Norm.L0:
        return sum(distance > 0 for distance in distances) <= ball.radius
    changes = [scale * distance for scale, distance in zip(ball.scale, distances, strict=True)]
    if ball.norm is Norm.L1:
        return sum(changes) <= ball.radius
    if ball.norm is Norm.L2:
        return sum(change * change for change in changes) <= ball.radius**2
    return max(changes) <= ball.radius


def _distance(lower: Fraction, upper: Fraction, value: Fraction) -> Fraction:
    return max(lower - value, value - upper, Fraction(0))


def violated_clause(
    found: Property, inputs: Sequence[Fraction], outputs: Sequence[Fraction]
) -> tuple[int, int] | None:
    """Case and clause, counted from 0, that the point violates; None where the property holds at it."""
    for case_number, case in enumerate(found.cases):
        if not inside(case.box, inputs):
            continue
        for clause_number, clause in enumerate(case.clauses):
            if holds(clause, inputs, outputs):
                return case_number, clause_number
    return None
