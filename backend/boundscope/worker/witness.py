"""Witnesses of a verify job: attacked for, certified in real arithmetic, replayed in float32 by ONNX Runtime."""

from __future__ import annotations

import dataclasses
import tempfile
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.bounds import BoundEngine
from boundscope.errors import BoundError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties import to_vnnlib
from boundscope.properties.exact import inside
from boundscope.properties.types import Box, LinearConstraint, NormBall, Property
from boundscope.protocol import Arithmetic, Counterexample, EpsilonBall, Method, Norm, Replay, VerifyJob
from boundscope.search import ball_reader
from boundscope.search.attack import Attack, AttackOutcome, Candidate
from boundscope.search.regions import inner_float
from boundscope.search.replay import Runs, replay, witness_texts
from boundscope.worker.files import JobFiles

CHECKED_CANDIDATES = 8
TOWARDS_CENTRE = (1.0, 1 - 1e-6, 1 - 1e-4, 0.99)  # shares of a point's way from a ball's centre


class Witnesses:
    """Finds and judges violating inputs.

    `other_arithmetic` is a witness that violates in the arithmetic that the job does not speak of (float32 for a
    job over the reals, and the other way round): shown beside the verdict, never part of it.
    """

    def __init__(
        self, job: VerifyJob, files: JobFiles, network: Network, prop: Property, engine: BoundEngine
    ) -> None:
        self._job, self._files, self._network, self._property = job, files, network, prop
        self._engine = engine
        self.other_arithmetic: Counterexample | None = None
        self._attacks: list[Attack] = []
        self._runs = Runs(files.network)

    def release(self) -> None:
        """Let go of the copies of the network that attacks and replays keep; they come back when they are needed."""
        self._attacks = []
        self._runs = Runs(self._files.network)

    def attack(self, case: int, monitor: Monitor, seconds: float) -> AttackOutcome:
        """Attack one case in float64 (which stands for the reals) and in the network's own precision, where that is
        another."""
        attacks = self._attacks
        if not attacks:
            own = torch.from_numpy(np.zeros(0, self._network.inputs[0].dtype)).dtype
            dtypes = dict.fromkeys((torch.float64, own if own.itemsize > 2 else torch.float32))
            attacks = self._attacks = [Attack(self._network, dtype, self._job.seed) for dtype in dtypes]
        share = seconds / len(attacks)
        outcomes = [each.run(self._property.cases[case], monitor, share) for each in attacks]
        if self._job.arithmetic is not Arithmetic.REAL:
            outcomes.reverse()
        margins = tuple(min(values) for values in zip(*(o.margins for o in outcomes), strict=True))
        return AttackOutcome(margins, tuple(one for o in outcomes for one in o.candidates))

    def best(self, case: int, outcome: AttackOutcome) -> Counterexample | None:
        """The first candidate that violates in the job's arithmetic; keeps one that does so only in the other."""
        for candidate in outcome.candidates[:CHECKED_CANDIDATES]:
            judged = self._judge(case, candidate)
            if judged is None:
                continue
            counterexample, real, float32 = judged
            wanted = real if self._job.arithmetic is Arithmetic.REAL else float32
            if wanted:
                return counterexample
            if (real or float32) and self.other_arithmetic is None:
                self.other_arithmetic = counterexample
        return None

    def _judge(self, case: int, candidate: Candidate) -> tuple[Counterexample, bool, bool] | None:
        """The candidate as a counterexample, and whether it violates over the reals and in float32."""
        box = self._property.cases[case].box
        clause = self._property.cases[case].clauses[candidate.clause]
        texts = _texts_inside(candidate.point, box)
        if texts is None:
            return None
        answer = self._replay(texts)
        if not answer.inside_box:
            return None
        real = self._violates_over_the_reals(texts, clause.constraints)
        float32 = answer.violates or answer.violates_unoptimized
        shape = self._network.inputs[0].shape if len(self._network.inputs) == 1 else (len(texts),)
        note = _arithmetic_note(real, float32)
        counterexample = Counterexample(
            inputs=texts,
            outputs=answer.outputs,
            case=case,
            clause=candidate.clause,
            clause_text=clause.text,
            replay=_with_note(answer, note),
            input_shape=shape,
        )
        return counterexample, real, float32

    def _replay(self, texts: tuple[str, ...]) -> Replay:
        if not isinstance(self._job.property, EpsilonBall):
            return replay(self._runs, self._files.property, texts)
        # A ball is replayed on the VNN-LIB text that states its box and clauses, read by the replay's own reader;
        # whether the input lies in the ball is judged by the ball's description.
        with tempfile.TemporaryDirectory(prefix="boundscope-") as folder:
            path = Path(folder) / "ball.vnnlib"
            path.write_text(to_vnnlib(self._property, enclosing_box=True), encoding="utf-8")
            answer = replay(self._runs, path, texts)
        shape = self._network.inputs[0].shape
        own = ball_reader.judge(self._job.property, self._files.property, shape, texts)
        if own.inside and self._job.property.norm is Norm.LINF:
            return answer
        note = f"{own.note}; {answer.note}" if answer.note else own.note
        return msgspec.structs.replace(answer, inside_box=answer.inside_box and own.inside, note=note)

    def _violates_over_the_reals(
        self, texts: tuple[str, ...], constraints: tuple[LinearConstraint, ...]
    ) -> bool:
        """Certified by bounds over the point itself: every constraint's margin is at most 0 for sure."""
        enclosure = _point_box(texts)
        if not constraints:
            return True
        engine = self._engine.alone()  # certifying a point needs no other rank
        try:
            context = engine.context(enclosure, Method.IBP)
            negated = [_negated(constraint) for constraint in constraints]
            greatest = (-engine.margins(context, negated, Method.IBP)).tolist()
        except BoundError:
            return False
        return all(
            value < 0 or (value == 0 and not constraint.strict)
            for value, constraint in zip(greatest, constraints, strict=True)
        )

    def reason(self, counterexample: Counterexample) -> str:
        where = "box" if self._property.cases[counterexample.case].box.ball is None else "ball"
        return (
            f"an input inside the {where} satisfies clause {counterexample.clause} of case {counterexample.case}; "
            f"{counterexample.replay.note}"
        )

    def other_arithmetic_note(self) -> str:
        """A clause to append to a reason, where the other arithmetic says otherwise."""
        if self.other_arithmetic is None:
            return ""
        return f"; but mind the arithmetic: {self.other_arithmetic.replay.note}"


def _arithmetic_note(real: bool, float32: bool) -> str:
    if real and float32:
        return "it violates over the reals and when replayed by ONNX Runtime in float32"
    if real:
        return "it violates over the reals, but not when replayed by ONNX Runtime in float32"
    if float32:
        return "ONNX Runtime in float32 violates the property at an input where real arithmetic does not"
    return "it violates neither over the reals nor when replayed by ONNX Runtime"


def _with_note(answer: Replay, note: str) -> Replay:
    return Replay(
        inside_box=answer.inside_box,
        violates=answer.violates,
        violates_unoptimized=answer.violates_unoptimized,
        outputs=answer.outputs,
        note=f"{note}; {answer.note}" if answer.note else note,
    )


def _to_float32_inside(point: NDArray[np.float64], box: Box) -> NDArray[np.float64]:
    """The nearest float32 point inside the box, where the box holds one; its own value elsewhere."""
    lower, upper = inner_float(box, np.float32)
    rounded = np.clip(point.astype(np.float32).astype(np.float64), lower, upper)
    return np.where((lower >= box.lower) & (upper <= box.upper), rounded, point)


def _texts_inside(point: NDArray[np.float64], box: Box) -> tuple[str, ...] | None:
    """Decimals of a point that lie inside the box and its ball as written; None where none were found near it.

    float32 numbers where they do; the point goes a little towards the centre where rounding would push it out of the
    ball, and inputs that did not move from the centre are written as the centre is.
    """
    if box.ball is None:
        return witness_texts(_to_float32_inside(point, box), box.lower_text, box.upper_text)
    ball = box.ball
    centre = (ball.centre_lower + ball.centre_upper) / 2
    for rounded in (True, False):
        same = point.astype(np.float32) == centre.astype(np.float32) if rounded else point == centre
        for share in TOWARDS_CENTRE:
            values = np.clip(centre + share * (point - centre), box.lower, box.upper)
            if rounded:
                values = _to_float32_inside(values, box)
            if not _may_be_inside(ball, np.where(same, centre, values)):
                continue
            own = witness_texts(values, box.lower_text, box.upper_text)
            each = zip(same.tolist(), ball.centre_lower_text, own, strict=True)
            texts = tuple(middle if unmoved else text for unmoved, middle, text in each)
            if inside(box, [Fraction(text) for text in texts]):
                return texts
    return None


def _may_be_inside(ball: NormBall, values: NDArray[np.float64]) -> bool:
    """False for what is clearly outside a ball, so that rational numbers are spared for what is near its boundary."""
    changes = np.maximum(np.maximum(ball.centre_lower - values, values - ball.centre_upper), 0.0)
    order = {Norm.L2: 2, Norm.L1: 1, Norm.L0: 0}.get(ball.norm, np.inf)
    return float(np.linalg.norm(changes * ball.scale_below, ord=order)) <= ball.radius_above * (1 + 1e-9)


def _point_box(texts: tuple[str, ...]) -> Box:
    nearest = np.array([float(text) for text in texts])
    exact = np.array(
        [Fraction(value) == Fraction(text) for value, text in zip(nearest.tolist(), texts, strict=True)]
    )
    return Box(
        lower_text=texts,
        upper_text=texts,
        lower=np.where(exact, nearest, np.nextafter(nearest, -np.inf)),
        upper=np.where(exact, nearest, np.nextafter(nearest, np.inf)),
    )


def _negated(constraint: LinearConstraint) -> LinearConstraint:
    """The constraint whose margin is minus this one's."""
    return dataclasses.replace(
        constraint,
        output_coeffs=-constraint.output_coeffs,
        input_coeffs=-constraint.input_coeffs,
        bound=-constraint.bound,
        exact_coeffs=tuple(-value for value in constraint.exact_coeffs),
    )
