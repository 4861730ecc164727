"""The words of the command line: commands, options and their help."""

from __future__ import annotations

import argparse
import enum
import math
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from boundscope import __version__, capabilities
from boundscope.cli.output import complain, read_size
from boundscope.errors import DaemonError, UsageError
from boundscope.protocol import (
    EXIT_USAGE,
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

if TYPE_CHECKING:
    from boundscope.client import RemoteHost

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

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


class Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors in our own voice."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message.removeprefix('argument ')}\nSee `{self.prog} --help`.")
        sys.exit(EXIT_USAGE)


def build() -> argparse.ArgumentParser:
    """The whole parser; each command sets `run` to a function of the parsed arguments."""
    parser = Parser(
        prog="boundscope",
        description="Prove how far a neural network can be trusted.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"boundscope {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    _add_verify(_command(commands, "verify", "prove or refute a property of a network", "verify"))
    _add_variability(
        _command(
            commands, "variability", "measure how much of a network's output is rounding noise", "variability"
        )
    )
    _add_plan(_command(commands, "plan", "say what each rank of a run will need", "plan"))
    _add_example(_command(commands, "example", "run an example that comes with Boundscope", "example"))
    _add_open(_command(commands, "open", "open the workbench, with these files if given", "workbench"))
    _add_jobs(_command(commands, "jobs", "list the jobs of the daemon", "jobs", "run_jobs"))
    _add_control(_command(commands, "pause", "have a job of the daemon stand still", "control", "run_pause"))
    _add_control(_command(commands, "continue", "let a paused job go on", "control", "run_continue"))
    _add_cancel(_command(commands, "cancel", "stop a job of the daemon", "control", "run_cancel"))
    _add_resume(
        _command(
            commands, "resume", "go on with a complete search of the daemon that was cut short", "resume"
        )
    )
    _add_export(
        _command(commands, "export", "write what a job of the daemon found to files", "jobs", "run_export")
    )
    _add_compare(_command(commands, "compare", "put two to eight jobs of the daemon side by side", "compare"))
    _add_daemon(_command(commands, "daemon", "start, stop or look at the daemon", "daemon"))
    _add_doctor(_command(commands, "doctor", "say what is missing on this machine, and the remedy", "doctor"))
    return parser


def _command(
    commands: argparse._SubParsersAction[Parser], name: str, help: str, module: str, function: str = "run"
) -> argparse.ArgumentParser:
    """One subparser; its module is imported only when the command is run."""
    parser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def run(arguments: argparse.Namespace) -> int:
        entry: Callable[[argparse.Namespace], int] = getattr(
            import_module(f"boundscope.cli.{module}"), function
        )
        return entry(arguments)

    parser.set_defaults(run=run)
    parser.add_argument("--debug", action="store_true", help="show Python's traceback when something fails")
    return parser


# ---------------------------------------------------------------- values


def decimal(text: str) -> str:
    """A decimal number, kept as written."""
    if not _DECIMAL.fullmatch(text):
        hint = "; write the quotient out as a decimal number" if "/" in text else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a decimal number{hint}")
    return text


def decimals(text: str) -> tuple[str, ...]:
    return tuple(decimal(part.strip()) for part in text.split(","))


def real(text: str) -> float:
    value = float(decimal(text))
    if math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return value


def hosts(text: str) -> tuple[str, ...]:
    """Host names with commas between them."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of hosts, as host1,host2")
    return found


def whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def member(kind: type[enum.StrEnum]) -> Callable[[str], enum.StrEnum]:
    """A reader of one of the enumeration's values."""

    def read(text: str) -> enum.StrEnum:
        if text not in [value.value for value in kind]:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(kind)}")
        return kind(text)

    return read


class Budget(NamedTuple):
    """A memory budget in bytes, or as a share of the device's memory; neither where none was asked for."""

    bytes: int | None = None
    share: float | None = None


def budget(text: str) -> Budget:
    """`text` as a size (2GiB) or a percentage (25%)."""
    if not text.rstrip().endswith("%"):
        return Budget(bytes=size(text))
    percent = real(text.rstrip().removesuffix("%"))
    if not 0 < percent <= 100:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not above 0 % and at most 100 % of the device's memory"
        )
    return Budget(share=percent / 100)


def size(text: str) -> int:
    try:
        return read_size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# ---------------------------------------------------------------- commands


def _add_verify(parser: argparse.ArgumentParser) -> None:
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
    _add_daemon_choice(how, "send it to the daemon instead of running it in this process")
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


def precision(text: str) -> int:
    """Significand bits, by number or by name."""
    if text in capabilities.PRECISION_BITS:
        return capabilities.PRECISION_BITS[text]
    if not text.isdecimal():
        names = ", ".join(capabilities.PRECISION_BITS)
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of significand bits nor one of {names}"
        )
    return int(text)


def _add_variability(parser: argparse.ArgumentParser) -> None:
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
    _add_daemon_choice(how, "send it to the daemon instead of running it in this process")

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


def _add_daemon_choice(group: argparse._ArgumentGroup, help: str) -> None:
    group.add_argument(
        "--daemon", metavar="HOME", nargs="?", type=Path, const=Path(), help=f"{help}; HOME is its folder"
    )
    _add_host(group, "daemon", "send it to the daemon of another host, through ssh")


def _add_home(parser: argparse.ArgumentParser, *, remote: bool = True) -> None:
    parser.add_argument(
        "--home",
        metavar="HOME",
        type=Path,
        help="the daemon's folder (default: $BOUNDSCOPE_HOME, or the user's)",
    )
    if remote:
        _add_host(parser, "home", "ask the daemon of another host, through ssh")


def _add_host(group: argparse._ActionsContainer, dest: str, help: str) -> None:
    """--host stands where the daemon's folder would: it is the same choice of a daemon."""
    group.add_argument(
        "--host",
        metavar="HOST[:HOME]",
        dest=dest,
        type=_host,
        help=f"{help}; HOST as ssh knows it, HOME the daemon's folder there",
    )


def _host(text: str) -> RemoteHost:
    from boundscope.client import read_host

    try:
        return read_host(text)
    except DaemonError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_plan(parser: argparse.ArgumentParser) -> None:
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
        type=_counts,
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
        "--sharding", metavar="SHARDING,…", type=_shardings, help="(default: none,rows,fsdp,tp-exact)"
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


def _counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(whole(part.strip()) for part in text.split(",")))


def _shardings(text: str) -> tuple[enum.StrEnum, ...]:
    read = member(Sharding)
    return tuple(dict.fromkeys(read(part.strip()) for part in text.split(",")))


def _add_example(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="which (default: digits-robust); see --list")
    parser.add_argument("--list", action="store_true", help="list the examples")
    parser.add_argument(
        "--report", metavar="DIR", type=Path, help="where its report goes (default: boundscope-report/NAME)"
    )


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", metavar="NET", type=Path, nargs="?", help="ONNX file, plain or .gz")
    parser.add_argument(
        "property", metavar="PROPERTY", type=Path, nargs="?", help="VNN-LIB file, plain or .gz"
    )
    parser.add_argument("--example", metavar="NAME", help="open an example; see `boundscope example --list`")
    parser.add_argument("--run", dest="run_now", action="store_true", help="run it at once")
    _add_home(parser, remote=False)
    _add_host(parser, "home", "work with the daemon of another host, through ssh")


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON array on standard output")
    _add_home(parser)


def _add_control(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job's id, the start of one, or `last`")
    _add_home(parser)


def _add_cancel(parser: argparse.ArgumentParser) -> None:
    _add_control(parser)
    parser.add_argument("--force", action="store_true", help="kill it at once")


def _add_resume(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_STATUS
    parser.add_argument("job", metavar="JOB", help="a job's id, the start of one, or `last`")
    parser.add_argument(
        "--timeout", metavar="S", type=real, help="seconds more (default: as many as the job had)"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="the result as one JSON object; - for standard output alone"
    )
    _add_home(parser)


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job's id, the start of one, or `last`")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", metavar="DIR", type=Path, help="HTML page, pictures, CSV and JSON")
    what.add_argument("--csv", metavar="DIR", type=Path, help="one CSV a table")
    what.add_argument("--json", metavar="FILE", help="the result as one JSON object; - for standard output")
    _add_home(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "jobs",
        metavar="JOB",
        nargs="+",
        help="jobs' ids, the starts of such, or `last`; ratios and differences are to the first",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--csv",
        metavar="FILE",
        help="the table of differences, and beside it those of layers and noise; - for standard output",
    )
    what.add_argument(
        "--json", metavar="FILE", nargs="?", const="-", help="one JSON object; standard output without FILE"
    )
    _add_home(parser)


def _add_daemon(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("start", "stop", "status", "run"),
        help="start it in the background, stop it, say how it does, or run it in this terminal",
    )
    parser.add_argument("--force", action="store_true", help="stop it although jobs run")
    parser.add_argument(
        "--no-spare",
        action="store_true",
        help="start or run it without a process that stands by for the next job; less memory, slower starts",
    )
    parser.add_argument(
        "--connection",
        action="store_true",
        help="start: print how to reach it, keys included, as one line of JSON (what --host reads through ssh)",
    )
    _add_home(parser, remote=False)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes",
        metavar="HOST,…",
        type=hosts,
        default=(),
        help="ask these machines, as ssh knows them, in place of this one: whether they can share a job's ranks",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    _add_home(parser, remote=False)
