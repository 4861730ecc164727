"""What a verify job reads: its network, which ONNX Runtime must read the same way, and its property."""

from __future__ import annotations

from boundscope.bounds import unsupported
from boundscope.errors import DynamicShapeError, NetworkError
from boundscope.network.comparison import compare_with_onnxruntime
from boundscope.network.graph import Network
from boundscope.properties import ball_property, read_property, summarize
from boundscope.properties.types import Property
from boundscope.protocol import Engine, EpsilonBall, VerifyJob
from boundscope.sharding.place import cuts_shards
from boundscope.worker.files import JobFiles
from boundscope.worker.networks import Networks
from boundscope.worker.steps import Steps
from boundscope.worker.summary import network_summary


class Reading:
    """The network and the property of a job, on one rank.

    `property` is there as soon as it has been read; `missing` are the operators that have no bounds, with their nodes.
    """

    def __init__(self, job: VerifyJob, files: JobFiles, networks: Networks, steps: Steps) -> None:
        self._job, self._files, self._networks, self._steps = job, files, networks, steps
        self._monitor, self._ranks = steps.monitor, steps.ranks
        self.property: Property | None = None
        self.missing: tuple[str, ...] = ()

    def load(self) -> tuple[Network, Property]:
        """Read both, and compare the network with ONNX Runtime; all ranks call together.

        Raises:
            NetworkError, PropertyError: a file that cannot be read, or that ONNX Runtime reads differently.
        """
        steps = self._steps
        steps.tell("reading the network")
        with steps.agreed(), steps.timed("load"):
            shared = self._ranks if self._only_parts else None
            network = self._networks.load(self._files.network, shared=shared)
            self._monitor.check()
            self.missing = missing = unsupported(network)
            if self._ranks.rank == 0:
                self._monitor.emit(network_summary(network, missing))
            if missing:
                self._monitor.log(f"only an attack can decide: {'; '.join(missing)}", "warning")
        steps.tell("reading the property")
        with steps.timed("parse"):
            prop = self._read_property(network)
            self.property = prop
            if self._ranks.rank == 0:
                self._monitor.emit(summarize(prop))
        self._compare(network, prop)
        return network, prop

    @property
    def _only_parts(self) -> bool:
        """Whether what bounds needs no whole weights, once they are placed."""
        whole = self._job.engine is Engine.AUTO_LIRPA or self._job.cross_check
        return cuts_shards(self._job.sharding, self._ranks) and not whole

    def _read_property(self, network: Network) -> Property:
        source = self._job.property
        if isinstance(source, EpsilonBall):
            if len(network.inputs) != 1:
                raise NetworkError("an ε-ball needs a network with one input")
            return ball_property(
                source,
                self._files.property,
                input_shape=network.inputs[0].shape,
                output_count=network.output_count,
            )
        return read_property(
            self._files.property, input_count=network.input_count, output_count=network.output_count
        )

    def _compare(self, network: Network, prop: Property) -> None:
        """Refuse a network that ONNX Runtime reads differently; where only shapes differ because values decide them,
        it can still be attacked."""
        moving = ""
        with self._steps.agreed(), self._steps.timed("load"):
            if self._ranks.rank == 0 and prop.cases and self._networks.first_comparison(network):
                box = prop.cases[0].box
                self._steps.tell("comparing with ONNX Runtime")
                try:
                    comparison = compare_with_onnxruntime(
                        network, box.lower, box.upper, seed=self._job.seed, between=self._monitor.check
                    )
                except DynamicShapeError as error:
                    moving = str(error)
                    self._networks.forget()
                    self._monitor.log(f"only an attack can decide: {moving}", "warning")
                else:
                    self._monitor.log(
                        f"ONNX Runtime agrees on all {comparison.tensors} tensors at {comparison.points} points; "
                        f"the largest difference is {comparison.max_difference:.3g} "
                        f"(node '{comparison.worst_node}')"
                    )
        moving = self._ranks.of_rank_0(moving)
        self.missing = (*self.missing, *([moving] if moving else []))
