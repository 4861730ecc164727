"""The words of the command line: commands, options and their help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from boundscope import __version__
from boundscope.cli.job_options import EXIT_STATUS, add_home, add_host, add_plan, add_variability, add_verify
from boundscope.cli.output import complain
from boundscope.cli.values import hosts, real
from boundscope.protocol import EXIT_USAGE


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
    add_verify(_command(commands, "verify", "prove or refute a property of a network", "verify"))
    add_variability(
        _command(
            commands, "variability", "measure how much of a network's output is rounding noise", "variability"
        )
    )
    add_plan(_command(commands, "plan", "say what each rank of a run will need", "plan"))
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
    add_home(parser, remote=False)
    add_host(parser, "home", "work with the daemon of another host, through ssh")


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON array on standard output")
    add_home(parser)


def _add_control(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job's id, the start of one, or `last`")
    add_home(parser)


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
    add_home(parser)


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job's id, the start of one, or `last`")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--all", metavar="DIR", type=Path, help="HTML page, pictures, CSV and JSON")
    what.add_argument("--csv", metavar="DIR", type=Path, help="one CSV a table")
    what.add_argument("--json", metavar="FILE", help="the result as one JSON object; - for standard output")
    add_home(parser)


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
    add_home(parser)


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
    add_home(parser, remote=False)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes",
        metavar="HOST,…",
        type=hosts,
        default=(),
        help="ask these machines, as ssh knows them, in place of this one: whether they can share a job's ranks",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_home(parser, remote=False)
