"""The form's draft and a job say the same thing, both ways; wrong numbers are found before anything is sent."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from boundscope.protocol import (
    Arithmetic,
    EpsilonBall,
    FileRef,
    Method,
    Norm,
    Precision,
    PropertyFile,
    Sharding,
    VerifyJob,
)
from boundscope_app.draft import Ball, Draft, Options, ball_problem, draft_of, named_only, source_name

NET = FileRef(name="net.onnx", sha256="a" * 64, size_bytes=10)
PROP = FileRef(name="prop.vnnlib", sha256="b" * 64, size_bytes=10)
IMAGE = FileRef(name="x.png", sha256="c" * 64, size_bytes=10)


@pytest.mark.parametrize(
    "job",
    [
        VerifyJob(network=NET, property=PropertyFile(file=PROP)),
        VerifyJob(
            network=NET,
            property=PropertyFile(file=PROP),
            method=Method.IBP,
            sharding=Sharding.ROWS,
            ranks=3,
            arithmetic=Arithmetic.FLOAT32,
            precision=Precision.FLOAT64,
            timeout_s=12.5,
            seed=7,
            chunk_rows=32,
            memory_budget_bytes=1 << 30,
            threads_per_rank=2,
            cross_check=True,
        ),
        VerifyJob(
            network=NET,
            property=EpsilonBall(
                center=IMAGE,
                epsilon="0.030",
                label=4,
                lower="0",
                upper="1.0",
                mean=("0.5", "0.4"),
                std=("0.25", "0.2"),
            ),
        ),
        VerifyJob(network=NET, property=EpsilonBall(center=IMAGE, epsilon="1e-3", label=0, norm=Norm.L2)),
    ],
)
def test_run_again_gives_the_same_job(job: VerifyJob) -> None:
    assert draft_of(job).job(named_only) == job


def test_the_form_carries_every_field_of_a_job() -> None:
    of_job = set(VerifyJob.__struct_fields__) - {"network", "property"}
    assert of_job == {each.name for each in fields(Options)}
    assert set(EpsilonBall.__struct_fields__) == {each.name for each in fields(Ball)}


def test_command_line_names_what_was_chosen() -> None:
    draft = Draft(Path("/a b/net.onnx"), Path("/p.vnnlib"), Options(method=Method.IBP, seed=3))
    words = shlex.split(draft.command())
    assert words[:2] == ["boundscope", "verify"]
    assert "/a b/net.onnx" in words
    assert "/p.vnnlib" in words
    assert words[words.index("--method") + 1] == "ibp"
    assert words[words.index("--seed") + 1] == "3"


def test_ball_waits_for_a_network_before_it_is_read_back() -> None:
    ball = Ball(IMAGE, "0.1")
    assert Draft(None, ball).inspect_job(named_only).property is None
    assert Draft(NET, ball).inspect_job(named_only).property is not None


@pytest.mark.parametrize(
    ("ball", "words"),
    [
        (Ball(IMAGE, ""), "ε must be"),
        (Ball(IMAGE, "0,1"), "ε must be"),
        (Ball(IMAGE, "-0.1"), "negative"),
        (Ball(IMAGE, "0.1", lower="0"), "both ends"),
        (Ball(IMAGE, "0.1", lower="1", upper="0"), "empty"),
        (Ball(IMAGE, "0.1", mean="0.5, x"), "mean"),
        (Ball(IMAGE, "0.1", mean="0.5", std="0.1, 0.2"), "one a channel"),
        (Ball(IMAGE, "0.1", std="0"), "more than 0"),
        (Ball(IMAGE, "0.1", lower="0", upper="1", norm=Norm.L0), "whole number"),
        (Ball(IMAGE, "3", norm=Norm.L0), "clip range must be given"),
    ],
)
def test_wrong_ball_is_explained(ball: Ball, words: str) -> None:
    said = ball_problem(ball)
    assert said is not None
    assert words in said


def test_right_ball_has_no_problem() -> None:
    assert ball_problem(Ball(IMAGE, "8e-3", 1, "0", "1", "0.1 0.2", "0.3;0.4")) is None


def test_job_without_files_is_refused() -> None:
    with pytest.raises(ValueError, match="network and a property"):
        Draft(NET, None).job(named_only)


def test_files_with_names_that_say_nothing_are_told_apart_by_their_folder() -> None:
    assert source_name(Path("/far/property.vnnlib")) == "far/property.vnnlib"
    assert Draft(Path("/x/model.onnx"), Path("/far/property.vnnlib")).title == "x · far"
    assert Draft(Path("/x/acas.onnx"), Path("/far/prop_1.vnnlib")).title == "acas.onnx · prop_1.vnnlib"
