"""The options of jobs: what is verified, measured or planned, how, and where it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from boundscope import capabilities
from boundscope.cli.values import (
    Budget,
    budget,
    counts,
    decimal,
    decimals,
    host,
    hosts,
    member,
    precision,
    real,
    shardings,
    size,
    whole,
)
from boundscope.protocol import (
    Arithmetic,
    Branching,
    Engine,
    Method,
    Norm,
    Precision,
    RoundingMode,
    Sharding,
    SourceSearch,
)

EXIT_STATUS = """\
exit status:
  0 verified   10 violated   20 unknown   21 timeout   22 out of memory
  1 error       2 usage     130 stopped by Ctrl+C
"""

VARIABILITY_EXIT_STATUS = """\
exit status:
  0 measured    21 timeout   22 out of memory
  1 error       2 usage     130 stopped by Ctrl+C
"""

VARIABILITY_EXAMPLES = """\
examples:
  boundscope variability net.onnx --inputs x.npy --samples 10 --seed 7 --out run
  boundscope variability net.onnx --inputs images/ --mean 0.5 --std 0.5 --mode ud --ranks 2
  boundscope variability net.onnx --property p.vnnlib --draw 32 --precision bf16
  boundscope variability net.onnx --inputs x.npy --source bisect
  boundscope variability compare run_sr run_ud

"""

VERIFY_EXAMPLES = """\
examples:
  boundscope verify net.onnx property.vnnlib
  boundscope verify net.onnx property.vnnlib.gz --method crown --sharding rows --ranks 2
  boundscope verify net.onnx property.vnnlib --method complete --timeout 600
  boundscope verify net.onnx --ball image.png --epsilon 0.03 --label 7 --clip 0 1
  boundscope verify net.onnx property.vnnlib --json - | jq .verdict
  boundscope verify --instances acasxu/instances.csv --method alpha-crown

"""

PLAN_EXAMPLES = """\
examples:
  boundscope plan net.onnx property.vnnlib
  boundscope plan net.onnx property.vnnlib --ranks 8,64,512 --device-memory 80GiB --device H100 --tflops 60
  boundscope plan net.onnx --method alpha-crown --sharding rows,fsdp --json
"""

INSTANCES_EXIT_STATUS = """\
with --instances:
  0 every instance verified or violated   20 some are neither   1 some ended in an error
"""


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.epilog = VERIFY_EXAMPLES + EXIT_STATUS + INSTANCES_EXIT_STATUS
    parser.usage = (
        "%(prog)s NET (PROPERTY | --ball CENTER --epsilon E --label K) [options]\n"
        "       %(prog)s --instances FILE [options]"
    )
    parser.add_argument("network", metavar="NET", type=Path, nargs="?", help="ONNX file, plain or .gz")
    parser.add_argument(
        "property",
        metavar="PROPERTY",
        type=Path,
        nargs="?",
        help="VNN-LIB file, plain or .gz (or give --ball)",
    )

    _add_ball(parser, "an ε-ball in place of PROPERTY")

    _add_instances(parser)

    how = parser.add_argument_group("how")
    for name, kind, available, default in (
        ("method", Method, capabilities.METHODS, Method.CROWN),
        ("engine", Engine, capabilities.ENGINES, Engine.NATIVE),
        ("sharding", Sharding, capabilities.SHARDINGS, Sharding.NONE),
        ("arithmetic", Arithmetic, capabilities.ARITHMETICS, Arithmetic.REAL),
        ("precision", Precision, tuple(Precision), Precision.MIXED),
    ):
        later = [choice for choice in kind if choice not in available]
        help = f"{', '.join(available)} (default: {default}"
        help += f"; not in this version yet: {', '.join(later)})" if later else ")"
        how.add_argument(f"--{name}", metavar=name.upper(), type=member(kind), default=default, help=help)
    how.add_argument(
        "--cross-check",
        action="store_true",
        help="run auto_LiRPA beside the native engine; an error where both cannot be right",
    )
    how.add_argument("--ranks", metavar="P", type=whole, help="processes of the job (default: 1)")
    how.add_argument(
        "--nodes",
        metavar="HOST,…",
        type=hosts,
        default=(),
        help="machines, as ssh knows them, that share the ranks (default: this one); the first keeps rank 0",
    )
    how.add_argument(
        "--ranks-per-node",
        metavar="K",
        type=whole,
        help="in place of --ranks (default: ranks / nodes, else 1)",
    )
    how.add_argument(
        "--timeout", metavar="S", type=real, help="seconds (default: 300, or as the instances file says)"
    )
    how.add_argument("--seed", metavar="N", type=whole, default=0, help="of the search for counterexamples")
    how.add_argument("--chunk-rows", metavar="R", type=whole, help="rows carried together, a multiple of 16")
    how.add_argument(
        "--memory-budget",
        metavar="SIZE",
        type=budget,
        default=Budget(),
        help="per rank, as 2GiB, or of the device's memory, as 25%% (default: half of what is free)",
    )
    how.add_argument("--threads", metavar="T", type=whole, help="per rank (default: cores / ranks)")
    add_daemon_choice(how, "send it to the daemon instead of running it in this process")
    _add_search(parser)

    out = parser.add_argument_group("what is written")
    out.add_argument(
        "--json", metavar="FILE", help="the result as one JSON object; - for standard output alone"
    )
    out.add_argument("--csv", metavar="DIR", type=Path, help="one CSV a table")
    out.add_argument("--report", metavar="DIR", type=Path, help="HTML page, pictures and CSV")
    out.add_argument(
        "--vnncomp", metavar="FILE", type=Path, help="VNN-COMP's result file, with the counterexample"
    )


def _add_instances(parser: argparse.ArgumentParser) -> None:
    many = parser.add_argument_group("a whole benchmark in place of NET and PROPERTY")
    many.add_argument(
        "--instances",
        metavar="FILE",
        type=Path,
        help="VNN-COMP's instances.csv: network, property, seconds; all run in one warm process",
    )
    many.add_argument(
        "--results",
        metavar="FILE",
        type=Path,
        help="CSV with a row an instance; a run goes on from the rows there (default: NAME_results.csv here)",
    )


def _add_search(parser: argparse.ArgumentParser) -> None:
    search = parser.add_argument_group(
        "with --method complete",
        "Bounds come first; what they leave open is split into domains, which are\n"
        "bounded in turn, until the property is proven, an input violates it, or the\n"
        "time is up.",
    )
    search.add_argument(
        "--branching",
        metavar="WHAT",
        type=member(Branching),
        default=Branching.AUTO,
        help="what is split: input (the box), activation (which side of its kink a neuron is on), or auto, which "
        "chooses by the number of inputs (default: auto)",
    )
    search.add_argument(
        "--batch", metavar="D", type=whole, help="domains bounded together (default: as memory allows)"
    )
    search.add_argument(
        "--force-synchronous",
        action="store_true",
        help="rounds of a size of the job's alone, so that runs with other --ranks bound the same domains",
    )
    search.add_argument(
        "--checkpoint",
        metavar="FILE",
        type=Path,
        help="keep the search here until there is an answer, and go on from a FILE that is there",
    )


def _add_ball(parser: argparse.ArgumentParser, title: str) -> None:
    ball = parser.add_argument_group(title)
    ball.add_argument(
        "--ball", metavar="CENTER", type=Path, help="its centre: .npy, or .png with pixels / 255"
    )
    ball.add_argument(
        "--epsilon",
        metavar="E",
        type=decimal,
        help="its radius, a decimal number; with l0 a number of inputs",
    )
    ball.add_argument(
        "--norm",
        metavar="NORM",
        type=member(Norm),
        help=f"of the radius: {', '.join(Norm)} (default: {Norm.LINF}; l0 needs --clip)",
    )
    ball.add_argument("--label", metavar="K", type=whole, help="the output that must stay the largest")
    ball.add_argument(
        "--clip", metavar=("LO", "HI"), nargs=2, type=decimal, help="keep every input within LO and HI"
    )
    ball.add_argument("--mean", metavar="M,…", type=decimals, default=(), help="subtracted, per channel")
    ball.add_argument("--std", metavar="S,…", type=decimals, default=(), help="then divided by, per channel")


def add_variability(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s NET (--inputs FILE | --property P --draw N) [options]\n       %(prog)s compare RUN RUN"
    )
    parser.epilog = VARIABILITY_EXAMPLES + VARIABILITY_EXIT_STATUS
    parser.add_argument("network", metavar="NET", type=Path, help="ONNX file, plain or .gz; or `compare`")
    parser.add_argument(
        "runs",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="of `compare`: two folders of --out, or files of moments",
    )

    points = parser.add_argument_group("the points that it is run on")
    points.add_argument(
        "--inputs", metavar="FILE", type=Path, help=".npy, .npz (one array an input), or PNG folder"
    )
    points.add_argument(
        "--property", metavar="P", type=Path, help="VNN-LIB file; compares proof and measurement"
    )
    points.add_argument(
        "--draw", metavar="N", type=whole, default=0, help="points drawn from the property's box"
    )
    _add_ball(parser, "an ε-ball in place of --property; --mean and --std also normalise PNG images")

    how = parser.add_argument_group("how")
    for name, kind, default, text in (
        ("mode", RoundingMode, RoundingMode.SR, "of every operation"),
        ("source", SourceSearch, SourceSearch.NONE, "look for the layers that the noise comes from"),
    ):
        how.add_argument(
            f"--{name}",
            metavar=name.upper(),
            type=member(kind),
            default=default,
            help=f"{text}: {', '.join(kind)} (default: {default})",
        )
    how.add_argument(
        "--samples", metavar="N", type=whole, default=10, help="runs of the network (default: 10)"
    )
    how.add_argument("--seed", metavar="N", type=whole, default=0, help="of the random words (default: 0)")
    how.add_argument("--precision", metavar="T", type=precision, help="bf16, tf32, fp16, or significand bits")
    how.add_argument(
        "--ranks", metavar="P", type=whole, default=1, help="processes that share samples (default: 1)"
    )
    how.add_argument("--threads", metavar="T", type=whole, help="per rank (default: cores / ranks)")
    how.add_argument("--timeout", metavar="S", type=real, default=3600.0, help="seconds (default: 3600)")
    how.add_argument(
        "--layers", metavar="NAME", action="append", default=[], help="only such as NAME; * and ? match"
    )
    how.add_argument("--class-axis", metavar="A", type=whole, help="of outputs [points, …] (default: 1)")
    how.add_argument(
        "--memory-budget", metavar="SIZE", type=size, help="per rank, as 2GiB (default: half of free)"
    )
    add_daemon_choice(how, "send it to the daemon instead of running it in this process")

    out = parser.add_argument_group("what is written")
    out.add_argument(
        "--out", metavar="DIR", type=Path, help="tables and moments; a run goes on from those there"
    )
    out.add_argument(
        "--format",
        metavar="F",
        choices=capabilities.TABLE_FORMATS,
        default="csv",
        help="of tables: csv or parquet",
    )
    out.add_argument(
        "--json", metavar="FILE", help="the result as one JSON object; - for standard output alone"
    )


def add_plan(parser: argparse.ArgumentParser) -> None:
    parser.epilog = PLAN_EXAMPLES
    parser.add_argument("network", metavar="NET", type=Path, help="ONNX file, plain or .gz")
    parser.add_argument(
        "property",
        metavar="PROPERTY",
        type=Path,
        nargs="?",
        help="VNN-LIB file, plain or .gz (default: as if each output had one inequality)",
    )
    parser.add_argument(
        "--ranks",
        metavar="P,…",
        type=counts,
        default=(2, 4, 8),
        help="numbers of ranks (default: 2,4,8; one rank is always shown)",
    )
    parser.add_argument(
        "--device-memory", metavar="SIZE", type=size, help="of each rank, as 80GiB: what must fit"
    )
    parser.add_argument(
        "--method", metavar="METHOD", type=member(Method), default=Method.CROWN, help="(default: crown)"
    )
    parser.add_argument(
        "--sharding", metavar="SHARDING,…", type=shardings, help="(default: none,rows,fsdp,tp-exact)"
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        default="cpu",
        help="cpu, which is measured, or any name beside --tflops (default: cpu)",
    )
    parser.add_argument(
        "--tflops", metavar="T", type=real, help="10^12 operations a second in float32; float64 counts half"
    )
    parser.add_argument("--bandwidth", metavar="SIZE", type=size, help="bytes a second to each rank, as 25GB")
    parser.add_argument(
        "--ranks-per-node", metavar="K", type=whole, help="ranks that share one CPU (default: all)"
    )
    parser.add_argument(
        "--chunk-rows", metavar="R", type=whole, help="rows carried together, a multiple of 16"
    )
    parser.add_argument("--timeout", metavar="S", type=real, default=300.0, help="seconds (default: 300)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def add_daemon_choice(group: argparse._ArgumentGroup, help: str) -> None:
    group.add_argument(
        "--daemon", metavar="HOME", nargs="?", type=Path, const=Path(), help=f"{help}; HOME is its folder"
    )
    add_host(group, "daemon", "send it to the daemon of another host, through ssh")


def add_home(parser: argparse.ArgumentParser, *, remote: bool = True) -> None:
    parser.add_argument(
        "--home",
        metavar="HOME",
        type=Path,
        help="the daemon's folder (default: $BOUNDSCOPE_HOME, or the user's)",
    )
    if remote:
        add_host(parser, "home", "ask the daemon of another host, through ssh")


def add_host(group: argparse._ActionsContainer, dest: str, help: str) -> None:
    """--host stands where the daemon's folder would: it is the same choice of a daemon."""
    group.add_argument(
        "--host",
        metavar="HOST[:HOME]",
        dest=dest,
        type=host,
        help=f"{help}; HOST as ssh knows it, HOME the daemon's folder there",
    )
