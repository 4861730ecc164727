"""What the form holds of a whole benchmark, before it is a job. No Qt."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from boundscope.command import instances_command
from boundscope.errors import UsageError
from boundscope.instances import benchmark_name, instances_job, read_instances, with_options
from boundscope.protocol import FileRef, InspectJob, InstancesJob, PropertyFile, VerifyJob
from boundscope_app.draft import Draft, Options, Resolve, Source, named_only


@dataclass(frozen=True)
class BenchmarkDraft:
    """`source` is an instances.csv, or stands for the instances of `kept`, whose files the daemon has already."""

    source: Source | None = None
    options: Options = field(default_factory=Options)
    kept: InstancesJob | None = None

    @property
    def complete(self) -> bool:
        """Whether there are instances: also False where the file cannot be read as such."""
        if not isinstance(self.source, Path):
            return self.kept is not None
        try:
            return bool(read_instances(self.source))
        except UsageError:
            return False

    @property
    def title(self) -> str:
        """Its name and how many instances it has, for the jobs table."""
        if not self.complete:
            return ""
        job = self.job(named_only)
        return f"{job.name} · {len(job.instances)} instances"

    def job(self, resolve: Resolve) -> InstancesJob:
        """The job, with each file turned into a reference. ValueError when there is no file, UsageError when it is
        wrong."""
        if self.kept is not None:
            first = self.kept.verify_job(0)
            assert isinstance(first.property, PropertyFile)
            return with_options(self.kept, self._verify(first.network, first.property.file))
        if not isinstance(self.source, Path):
            raise ValueError("a benchmark needs its instances.csv")
        lines = read_instances(self.source)
        refs = {path: resolve(path) for line in lines for path in (line.network, line.property)}
        verify = self._verify(refs[lines[0].network], refs[lines[0].property])
        return instances_job(lines, verify, refs.__getitem__, name=benchmark_name(self.source))

    def _verify(self, network: FileRef, prop: FileRef) -> VerifyJob:
        options = {each.name: getattr(self.options, each.name) for each in fields(Options)}
        return VerifyJob(network=network, property=PropertyFile(file=prop), **options)

    def inspect_job(self, resolve: Resolve) -> InspectJob:
        """Nothing of a benchmark is read back by the daemon."""
        return Draft().inspect_job(resolve)

    def command(self) -> str:
        """The shell line that does the same. ValueError when there is no file."""
        if self.source is None:
            raise ValueError("a benchmark needs its instances.csv")
        place = str(self.source) if isinstance(self.source, Path) else self.source.name
        return instances_command(self.job(named_only), place, None)


def benchmark_draft_of(job: InstancesJob) -> BenchmarkDraft:
    """The draft that would give this job again; its files are already with the daemon."""
    options = Options(**{each.name: getattr(job.verify, each.name) for each in fields(Options)})
    name = f"{job.name}/instances.csv"
    return BenchmarkDraft(FileRef(name=name, sha256="", size_bytes=0), options, job)
