"""Reads a network and a property back to people: `python -m boundscope.worker.inspect FOLDER`, without ranks."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from boundscope.daemon.jobspec import JobSpec, read_spec
from boundscope.errors import BoundscopeError, NetworkError
from boundscope.monitor import Monitor
from boundscope.protocol import EpsilonBall, Failure, InspectJob, Progress, PropertySource
from boundscope.worker import process
from boundscope.worker.observer import Observer

if TYPE_CHECKING:
    from boundscope.network.graph import Network
    from boundscope.properties.types import Property


TELL_S = 0.25  # between two words on how far the reading of a network is


def main(folder: Path) -> NoReturn:
    process.begin()
    spec = read_spec(folder)
    with Observer(spec, 0) as observer:
        status = _inspect_guarded(spec, observer)
    process.end(status)


def _inspect_guarded(spec: JobSpec, observer: Observer) -> int:
    try:
        assert isinstance(spec.job, InspectJob), "only inspect jobs come here"
        network = None if spec.network is None else Path(spec.network)
        given = None if spec.property is None else Path(spec.property)
        inspect_files(spec.job, network, given, observer)
    except BoundscopeError as error:
        observer.emit(Failure(cause=str(error)))
        return 1
    except Exception as error:  # noqa: BLE001 the edge of the process: told with its cause, and the status says so
        cause = f"the files could not be read: {type(error).__name__}: {error}"
        observer.emit(Failure(cause=cause, detail=traceback.format_exc()))
        return 1
    return 0


def inspect_files(
    job: InspectJob, network_path: Path | None, property_path: Path | None, monitor: Monitor
) -> None:
    """Emit what can be said, soonest first: the property, the network, then what of it has no bound rule.

    Raises:
        NetworkError, PropertyError: a file that cannot be read, or a property that does not fit the network.
    """
    is_file = job.property is not None and not isinstance(job.property, EpsilonBall)
    given = _emit_property_file(property_path, monitor) if is_file and property_path is not None else None
    network = None if network_path is None else _emit_network(network_path, monitor)
    if job.property is not None and property_path is not None and network is not None:
        _check_fit(job.property, property_path, given, network, monitor)
    if network is not None:
        _emit_unsupported(network, monitor)


def _emit_property_file(path: Path, monitor: Monitor) -> Property:
    from boundscope.properties import read_property, summarize

    monitor.emit(Progress(stage="reading the property", done=0, total=0))
    given = read_property(path)
    monitor.emit(summarize(given))
    return given


def _emit_network(path: Path, monitor: Monitor) -> Network:
    stage, told_s = "reading the network", monitor.now_s
    monitor.emit(Progress(stage=stage, done=0, total=0))
    from boundscope.network import load_network
    from boundscope.worker.summary import network_summary

    def told(done: int, total: int) -> None:
        nonlocal told_s
        if monitor.now_s - told_s >= TELL_S:
            told_s = monitor.now_s
            monitor.emit(Progress(stage=stage, done=done, total=total))

    network = load_network(path, told=told)
    monitor.emit(network_summary(network))
    return network


def _check_fit(
    source: PropertySource, path: Path, given: Property | None, network: Network, monitor: Monitor
) -> None:
    """Build an ε-ball for the network; for a file, read it again with the network's counts where they differ."""
    from boundscope.properties import ball_property, read_property, summarize

    monitor.emit(Progress(stage="fitting the property to the network", done=0, total=0))
    if isinstance(source, EpsilonBall):
        if len(network.inputs) != 1:
            raise NetworkError(
                f"an ε-ball needs a network with one input; this one has {len(network.inputs)}"
            )
        shape = network.inputs[0].shape
        monitor.emit(
            summarize(ball_property(source, path, input_shape=shape, output_count=network.output_count))
        )
        return
    counts = (network.input_count, network.output_count)
    if given is None or (given.input_count, given.output_count) != counts:
        read_property(path, input_count=counts[0], output_count=counts[1])


def _emit_unsupported(network: Network, monitor: Monitor) -> None:
    """The same summary with what cannot be bounded; where all can, with what bounds cost."""
    monitor.emit(Progress(stage="reckoning what bounds cost", done=0, total=0))
    from boundscope.bounds import unsupported
    from boundscope.worker.costs import machine_costs, network_costs
    from boundscope.worker.summary import network_summary

    missing = unsupported(network)
    summary = network_summary(network, missing)
    if not missing:
        summary = replace(summary, costs=network_costs(network), machine=machine_costs())
    monitor.emit(summary)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
