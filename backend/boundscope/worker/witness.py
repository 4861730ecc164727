"""Witnesses of a verify job: attacked for, certified in real arithmetic, replayed in float32 by ONNX Runtime."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Collection, Mapping
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.bounds import BoundEngine
from boundscope.errors import BoundError, UnsupportedOperatorError
from boundscope.monitor import Monitor
from boundscope.network.arrays import release
from boundscope.network.graph import Network
from boundscope.properties import to_vnnlib
from boundscope.properties.exact import inside
from boundscope.properties.types import Box, LinearConstraint, NormBall, Property
from boundscope.protocol import Arithmetic, Counterexample, EpsilonBall, Method, Norm, Replay, VerifyJob
from boundscope.search import ball_reader
from boundscope.search.attack import Attack, Effort
from boundscope.search.attack_found import Candidate
from boundscope.search.evaluation import operations
from boundscope.search.exact_point import MOST_OPERATIONS, holds_over_the_reals
from boundscope.search.regions import inner_float
from boundscope.search.replay import Runs, replay, witness_texts
from boundscope.worker.files import JobFiles

CHECKED_CANDIDATES = 8
REFINED_POINTS = 4
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
        self._kept: Attack | None = None
        self._runs = Runs(files.network)
        self._margins: dict[tuple[int, int], float] = {}

    def release(self) -> None:
        """Let go of the copies of the network that attacks and replays keep; they come back when they are needed."""
        self._keep_margins()
        self._kept = None
        self._runs = Runs(self._files.network)
        release(self._network.constants)

    @property
    def margins(self) -> Mapping[tuple[int, int], float]:
        """The least margin seen of each (case, clause); those that were never reached are not among them."""
        self._keep_margins()
        return self._margins

    def attack(
        self,
        monitor: Monitor,
        seconds: float,
        effort: Effort,
        open_clauses: Collection[tuple[int, int]] | None = None,
    ) -> Counterexample | None:
        """Attack the open clauses (case, clause) of all cases; None: all clauses. A witness that stands up to its
        replay, or None."""
        found: list[Counterexample] = []

        def accept(candidate: Candidate) -> bool:
            counterexample = self._considered(candidate)
            if counterexample is not None:
                found.append(counterexample)
            return counterexample is not None

        self._attack.run(monitor, seconds, accept, effort=effort, open_clauses=open_clauses)
        return found[0] if found else None

    def judge(
        self, case: int, points: NDArray[np.float64], monitor: Monitor | None = None
    ) -> Counterexample | None:
        """Evaluate points [N, inputs] of a case's box that a search met, and with a monitor walk on a little from the
        nearest ones. A witness that stands up to its replay, or None."""
        if not len(points):
            return None
        judged = self._attack.judge(points, np.full(len(points), case))
        if not judged.candidates and monitor is not None:
            nearest = np.argsort(judged.margins.min(axis=1))[:REFINED_POINTS]
            judged = self._attack.refine(points[nearest], np.full(len(nearest), case), monitor)
        for candidate in judged.candidates[:CHECKED_CANDIDATES]:
            counterexample = self._considered(candidate)
            if counterexample is not None:
                return counterexample
        return None

    @property
    def _attack(self) -> Attack:
        if self._kept is None:
            own = torch.from_numpy(np.zeros(0, self._network.inputs[0].dtype)).dtype
            own = own if own.itemsize > 2 else torch.float32
            self._kept = Attack(
                self._network,
                self._property,
                judging=torch.float64 if self._job.arithmetic is Arithmetic.REAL else own,
                own=own,
                seed=self._job.seed,
                fallback=self._run_original,
            )
        return self._kept

    def _keep_margins(self) -> None:
        if self._kept is None:
            return
        for case, row in enumerate(self._kept.margins.tolist()):
            for clause, value in enumerate(row):
                if value < self._margins.get((case, clause), float("inf")):
                    self._margins[case, clause] = value

    def _run_original(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Outputs [B, outputs] of ONNX Runtime, NaN where it fails too."""
        return np.stack([self._runs.outputs(point, self._network.output_count) for point in points])

    def _considered(self, candidate: Candidate) -> Counterexample | None:
        """The candidate as a counterexample where it violates in the job's arithmetic; keeps one that does so only in
        the other. Inputs rounded to float32 are tried first: they read and replay as they are."""
        box = self._property.cases[candidate.case].box
        tried: set[tuple[str, ...]] = set()
        for rounded in (True, False):
            texts = _texts_inside(candidate.point, box, rounded=rounded)
            if texts is None or texts in tried:
                continue
            tried.add(texts)
            judged = self._judge(candidate, texts)
            if judged is None:
                continue
            counterexample, real, float32 = judged
            if real if self._job.arithmetic is Arithmetic.REAL else float32:
                return counterexample
            if (real or float32) and self.other_arithmetic is None:
                self.other_arithmetic = counterexample
        return None

    def _judge(
        self, candidate: Candidate, texts: tuple[str, ...]
    ) -> tuple[Counterexample, bool, bool] | None:
        """The candidate as a counterexample, and whether it violates over the reals and in float32."""
        clause = self._property.cases[candidate.case].clauses[candidate.clause]
        answer = self._replay(texts)
        if not answer.inside_box:
            return None
        real = self._violates_over_the_reals(texts, clause.constraints)
        for file in self._network.files:  # else it may be a witness against another network
            file.require()
        float32 = answer.violates or answer.violates_unoptimized
        shape = self._network.inputs[0].shape if len(self._network.inputs) == 1 else (len(texts),)
        note = _arithmetic_note(real, float32)
        counterexample = Counterexample(
            inputs=texts,
            outputs=answer.outputs,
            case=candidate.case,
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
        """Certified by bounds over the point itself: every constraint's margin is at most 0 for sure; where these do
        not tell, in long fixed-point numbers."""
        enclosure = _point_box(texts)
        if not constraints:
            return True
        engine = self._engine.alone()  # certifying a point needs no other rank
        try:
            context = engine.context(enclosure, Method.IBP)
            negated = [_negated(constraint) for constraint in constraints]
            greatest = (-engine.margins(context, negated, Method.IBP)).tolist()
            if all(
                value < 0 or (value == 0 and not constraint.strict)
                for value, constraint in zip(greatest, constraints, strict=True)
            ):
                return True
            if bool((engine.margins(context, list(constraints), Method.IBP) > 0).any()):
                return False
        except (BoundError, UnsupportedOperatorError):
            pass  # nothing is known yet
        if operations(self._network) > MOST_OPERATIONS:
            return False
        return holds_over_the_reals(self._network, [Fraction(text) for text in texts], constraints)

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


def _texts_inside(point: NDArray[np.float64], box: Box, *, rounded: bool) -> tuple[str, ...] | None:
    """Decimals of a point that lie inside the box and its ball as written; None where none were found near it.

    `rounded`: float32 numbers, where the box holds some. The point goes a little towards the centre where rounding
    would push it out of the ball, and inputs that did not move from the centre are written as the centre is.
    """
    if box.ball is None:
        values = _to_float32_inside(point, box) if rounded else point
        return witness_texts(values, box.lower_text, box.upper_text)
    ball = box.ball
    centre = (ball.centre_lower + ball.centre_upper) / 2
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
