"""All jobs of a daemon: the queue, those that run, those that have ended; their states and their folders."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from boundscope import capabilities
from boundscope.daemon.blobs import BlobStore, hashes_of, job_files, property_file
from boundscope.daemon.endpoint import Endpoint, KeyPair
from boundscope.daemon.hello import HOST
from boundscope.daemon.jobspec import CHECKPOINT_NAME, SEARCH_NAME, JobSpec, Kind, job_kind
from boundscope.daemon.launch import Launch, launch_anew
from boundscope.daemon.postmortem import Outcome
from boundscope.daemon.run import JobRun
from boundscope.daemon.store import Store
from boundscope.errors import BoundscopeError, StoreError, UsageError
from boundscope.protocol import (
    Event,
    Failure,
    FileRef,
    InspectJob,
    InstancesJob,
    Job,
    JobInfo,
    JobState,
    LogLine,
    Progress,
    StateChanged,
    VariabilityJob,
    Verdict,
    VerifyJob,
)

INSPECTIONS_KEPT = 20
INSPECTIONS_AT_ONCE = 4
FINAL = (Verdict.VERIFIED, Verdict.VIOLATED)  # verdicts that more time would not change
log = logging.getLogger("boundscope.daemon")


class Jobs:
    """`changed(info)` is called for every change of a JobInfo, before it is committed."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        endpoint: Endpoint,
        folder: Path,
        kinds: Mapping[str, Kind],
        *,
        at_once: int,
        changed: Callable[[JobInfo], None],
        launch: Launch = launch_anew,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._endpoint = endpoint
        self._folder = folder
        self._kinds = kinds
        self._at_once = at_once
        self._changed = changed
        self._launch = launch
        self._infos: dict[str, JobInfo] = {}
        self._keys: dict[str, str] = {}  # job id -> submission key, and the other way round
        self._ids: dict[str, str] = {}
        self._open: set[str] = set()  # not ended
        self._runs: dict[str, JobRun] = {}
        self.paused = False

    # ------------------------------------------------------------ what there is

    @property
    def runs(self) -> Mapping[str, JobRun]:
        """The jobs that have processes now."""
        return self._runs

    def listed(self, *, include_inspections: bool) -> tuple[JobInfo, ...]:
        """Every job in order of creation."""
        return tuple(
            self.info(job_id)
            for job_id, info in self._infos.items()
            if (include_inspections or not self._kinds[info.kind].beside) and self._store.job(job_id)
        )

    def info(self, job_id: str) -> JobInfo:
        """One job as committed; StoreError where there is none of that id."""
        committed = self._store.job(job_id)
        if committed is None:
            raise StoreError(f"there is no job {job_id!r}; it may have been deleted")
        return replace(committed, progress=self._infos[job_id].progress)

    @property
    def idle(self) -> bool:
        return not self._open

    def recover(self) -> None:
        """Read the store at start-up: what ran when the daemon went away was interrupted."""
        for key, info in self._store.jobs():
            self._infos[info.id] = info
            self._keys[info.id] = key
            self._ids[key] = info.id
            if info.state.ended:
                continue
            self._open.add(info.id)
            if info.state is JobState.QUEUED:
                continue
            self._store.forget_processes(info.id)
            self._end(info.id, JobState.INTERRUPTED, "the daemon went away while the job ran")
        for folder in self._folder.iterdir():
            if folder.name not in self._infos:
                shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------ submitting

    def submit(self, job: Job, key: str, title: str, *, resumes: str | None = None) -> JobInfo:
        """Queue a job; the same key again gives the job that it gave before. BoundscopeError says why not."""
        if key in self._ids:
            return self.info(self._ids[key])
        if not key:
            raise UsageError("a job must be submitted with a key of its own")
        if isinstance(job, VerifyJob):
            capabilities.check(job)
        elif isinstance(job, VariabilityJob):
            capabilities.check_variability(job)
        elif isinstance(job, InstancesJob):
            capabilities.check_instances(job)
        elif job.network is None and job.property is None:
            raise UsageError("there is neither a network nor a property to look at")
        for ref in job_files(job):
            self._blobs.require(ref)
        now = time.time()
        job_id = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(3)}"
        info = JobInfo(
            id=job_id,
            kind=job_kind(job),
            title=title or _title(job),
            state=JobState.QUEUED,
            job=job,
            created_s=now,
            host=HOST,
            resumes=resumes,
        )
        self._infos[job_id] = info
        self._keys[job_id] = key
        self._ids[key] = job_id
        self._open.add(job_id)
        self._set_state(job_id, JobState.QUEUED)
        return info

    def resume(self, job_id: str, key: str, timeout_s: float | None) -> JobInfo:
        """Queue a job that goes on with the search of one that has ended; UsageError where there is none to go on with.

        The state stays with the old job until the new one starts.
        """
        if key in self._ids:
            return self.info(self._ids[key])
        info = self.info(job_id)
        if waiting := self._resuming(job_id):
            raise UsageError(
                f"job {waiting}, which waits for its turn, goes on with the search of job {job_id}"
            )
        if not info.resumable or not isinstance(info.job, VerifyJob):
            raise UsageError(f"job {job_id} left nothing to go on from: {self._why_final(info)}")
        job = info.job if timeout_s is None else replace(info.job, timeout_s=timeout_s)
        return self.submit(job, key, info.title, resumes=job_id)

    def _resuming(self, job_id: str) -> str | None:
        """The job that waits to take over another's search."""
        waiting = (info for info in self._infos.values() if info.resumes == job_id)
        return next((info.id for info in waiting if info.state is JobState.QUEUED), None)

    def _why_final(self, info: JobInfo) -> str:
        if not info.state.ended:
            return f"it is {info.state}"
        if info.verdict in FINAL:
            return f"it has its answer, {info.verdict}"
        taken = [other.id for other in self._infos.values() if other.resumes == info.id]
        if taken:
            return f"job {taken[-1]} has taken its search over"
        return "only a complete search (method complete) that had begun can go on"

    def withdraw(self, job_id: str) -> None:
        """Take a job back that could not be committed: whoever submitted it is told that it was refused."""
        if self._store.committed(job_id) == 0:
            self._store.unstage(job_id)
            self._open.discard(job_id)
            del self._infos[job_id], self._ids[self._keys.pop(job_id)]

    # ------------------------------------------------------------ changes

    def _update(self, job_id: str, **changes: object) -> None:
        info = replace(self._infos[job_id], **changes)
        self._infos[job_id] = info
        self._store.put_job(self._keys[job_id], info)
        self._changed(info)

    def _set_state(self, job_id: str, state: JobState, reason: str = "", **changes: object) -> None:
        now = time.time()
        self._store.append(job_id, -1, now, StateChanged(state=state, reason=reason))
        info = self._infos[job_id]
        if info.paused_since_s is not None and not state.held:
            lasted_s = max(0.0, now - info.paused_since_s)
            changes |= {"paused_s": info.paused_s + lasted_s, "paused_since_s": None}
        self._update(job_id, state=state, **changes)

    def _end(
        self,
        job_id: str,
        state: JobState,
        cause: str = "",
        *,
        verdict: Verdict | None = None,
        **changes: object,
    ) -> None:
        self._open.discard(job_id)
        search = self._folder / job_id / SEARCH_NAME
        if verdict in FINAL:
            shutil.rmtree(search, ignore_errors=True)
        changes |= {"verdict": verdict, "resumable": (search / CHECKPOINT_NAME).exists()}
        self._set_state(job_id, state, cause, cause=cause, ended_s=time.time(), **changes)

    def _record(self, job_id: str, rank: int, time_s: float, event: Event) -> None:
        self._store.append(job_id, rank, time_s, event)
        if isinstance(event, Progress):
            info = self._infos[job_id] = replace(self._infos[job_id], progress=event)
            self._changed(info)

    # ------------------------------------------------------------ running

    def tick(self) -> None:
        """Start what may start, look after what runs, settle what has ended."""
        for job_id, run in list(self._runs.items()):
            outcome = run.tick()
            self._follow(job_id, run)
            if outcome is not None:
                self._settle(job_id, outcome)
        if not self.paused:
            self._start_queued()

    def _follow(self, job_id: str, run: JobRun) -> None:
        """Say when the ranks have all joined, and when all of them stand in a pause."""
        info = self._infos[job_id]
        if run.joined and info.state is JobState.STARTING:
            self._set_state(job_id, JobState.RUNNING, started_s=info.started_s or time.time())
        elif info.state is JobState.PAUSING and run.standing:
            self._set_state(job_id, JobState.PAUSED, started_s=info.started_s or info.paused_since_s)

    def _start_queued(self) -> None:
        room = {False: self._at_once, True: INSPECTIONS_AT_ONCE}
        for job_id in self._runs:
            room[self._kinds[self._infos[job_id].kind].beside] -= 1
        for job_id in sorted(self._open, key=lambda job_id: (self._infos[job_id].created_s, job_id)):
            info = self._infos[job_id]
            beside = self._kinds[info.kind].beside
            if info.state is JobState.QUEUED and room[beside] > 0:
                room[beside] -= 1
                self._start(job_id, info)

    def _start(self, job_id: str, info: JobInfo) -> None:
        folder = self._folder / job_id
        self._set_state(job_id, JobState.STARTING)
        try:
            run = self._prepare(info, folder)
            run.start()
        except (BoundscopeError, OSError) as error:
            cause = f"the job could not be started: {error}"
            self._store.append(job_id, -1, time.time(), Failure(cause=cause))
            self._endpoint.expel(f"job:{job_id}")
            self._end(job_id, JobState.FAILED, cause)
            return
        self._runs[job_id] = run

    def _prepare(self, info: JobInfo, folder: Path) -> JobRun:
        """Lay out the job's files and admit a key of its own."""
        job = info.job
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        network, given = self._lay_out_pair(job, folder)
        points, results = self._lay_out_points(job, folder)
        checkpoint = self._prepare_search(info, folder) if isinstance(job, VerifyJob) else None
        many = job if isinstance(job, InstancesJob) else None
        keys = KeyPair.new()
        self._endpoint.admit(keys.public, f"job:{info.id}")
        kind = self._kinds[info.kind]
        spec = JobSpec(
            job_id=info.id,
            job=job,
            entry=kind.entry,
            ranks=1 if isinstance(job, InspectJob) else job.ranks,
            network=network,
            property=given,
            address=self._endpoint.address,
            server_public_key=self._endpoint.keys.public,
            public_key=keys.public,
            secret_key=keys.secret,
            inputs=points,
            results=results,
            checkpoint=checkpoint,
            networks=() if many is None else self._lay_out_all(many.networks, folder / "networks"),
            properties=() if many is None else self._lay_out_all(many.properties, folder / "properties"),
        )
        return JobRun(
            spec,
            folder,
            kind,
            record=lambda rank, time_s, event: self._record(info.id, rank, time_s, event),
            send=self._endpoint.send,
            remember=lambda mark: self._store.remember_process(info.id, mark),
            launch=self._launch,
        )

    def _prepare_search(self, info: JobInfo, folder: Path) -> str:
        """Where the job keeps its search's state: that of the job that it goes on with, or none yet."""
        search = folder / SEARCH_NAME
        if (
            info.resumes is not None
            and (self._folder / info.resumes / SEARCH_NAME / CHECKPOINT_NAME).exists()
        ):
            os.rename(self._folder / info.resumes / SEARCH_NAME, search)
            self._update(info.resumes, resumable=False)
        else:
            search.mkdir(mode=0o700)
        return str(search / CHECKPOINT_NAME)

    def _lay_out_pair(self, job: Job, folder: Path) -> tuple[str | None, str | None]:
        """The network and the file of the property of a job that has one of each at most."""
        if isinstance(job, InstancesJob):
            return None, None
        source = property_file(job.property)
        network = None if job.network is None else self._blobs.lay_out(job.network, folder / "network")
        given = None if source is None else self._blobs.lay_out(source, folder / "property")
        return None if network is None else str(network), None if given is None else str(given)

    def _lay_out_all(self, refs: tuple[FileRef, ...], folder: Path) -> tuple[str, ...]:
        """A folder each, for two files of one job may have the same name."""
        return tuple(str(self._blobs.lay_out(ref, folder / str(number))) for number, ref in enumerate(refs))

    def _lay_out_points(self, job: Job, folder: Path) -> tuple[tuple[str, ...], str | None]:
        """The files of a variability job's points, and the folder for its results, which stays with the job."""
        if not isinstance(job, VariabilityJob):
            return (), None
        points = self._lay_out_all(job.inputs, folder / "inputs")
        results = folder / "results"
        results.mkdir(mode=0o700)
        return points, str(results)

    def _settle(self, job_id: str, outcome: Outcome) -> None:
        del self._runs[job_id]
        self._endpoint.expel(f"job:{job_id}")
        self._store.forget_processes(job_id)
        if outcome.failure is not None:
            self._store.append(job_id, -1, time.time(), outcome.failure)
        verdict = None if outcome.result is None else outcome.result.verdict
        self._end(job_id, outcome.state, outcome.cause, verdict=verdict)
        for name in ("network", "property", "inputs", "networks", "properties"):
            shutil.rmtree(self._folder / job_id / name, ignore_errors=True)
        if self._kinds[self._infos[job_id].kind].beside:
            self._forget_old_inspections()

    def _forget_old_inspections(self) -> None:
        old = [i.id for i in self._infos.values() if self._kinds[i.kind].beside and i.state.ended]
        for job_id in old[:-INSPECTIONS_KEPT]:
            try:
                self.delete(job_id)
            except BoundscopeError as error:  # a full disk; the next inspection's end tries again
                log.warning("inspection %s is kept: %s", job_id, error)

    # ------------------------------------------------------------ stopping

    def cancel(self, job_id: str, *, force: bool = False) -> None:
        """Stop a job that waits or runs; nothing happens to one that has ended."""
        self.info(job_id)
        info = self._infos[job_id]
        if info.state is JobState.QUEUED:
            self._end(job_id, JobState.CANCELLED, "cancelled before it started")
        elif not info.state.ended:
            if info.state is not JobState.CANCELLING:
                self._store.append(job_id, -1, time.time(), LogLine(text="asked to stop"))
                self._set_state(job_id, JobState.CANCELLING)
            self._runs[job_id].cancel(force=force)

    def pause(self, job_id: str) -> None:
        """Have a job stand still, in its place; UsageError where it does not run."""
        self.info(job_id)
        info = self._infos[job_id]
        if info.state.held:
            return
        if not info.state.can_hold or self._kinds[info.kind].beside:
            raise UsageError(f"job {job_id} is {info.state}; only a job that runs can be paused")
        self._runs[job_id].pause()
        self._set_state(job_id, JobState.PAUSING, paused_since_s=time.time())

    def go_on(self, job_id: str) -> None:
        """End a pause; nothing happens to a job that runs. UsageError where it does neither."""
        self.info(job_id)
        info = self._infos[job_id]
        if info.state.held:
            run = self._runs[job_id]
            run.go_on()
            # One that was paused before its ranks had all joined goes on joining.
            known = info.started_s is not None
            self._set_state(job_id, JobState.RUNNING if known else JobState.STARTING)
        elif not info.state.can_hold:
            raise UsageError(f"job {job_id} is {info.state}; only a paused job can be continued")

    def delete(self, job_id: str) -> JobInfo:
        """Remove an ended job with its events, its folder and the files that no other job names."""
        info = self.info(job_id)
        if not info.state.ended:
            raise UsageError(f"job {job_id} is {info.state}; cancel it first")
        if waiting := self._resuming(job_id):
            raise UsageError(
                f"job {waiting}, which waits for its turn, goes on with its search; cancel that first"
            )
        self._store.delete_jobs([job_id])
        del self._infos[job_id], self._ids[self._keys.pop(job_id)]
        shutil.rmtree(self._folder / job_id, ignore_errors=True)
        mine = hashes_of([info.job])
        for sha256 in mine - hashes_of(other.job for other in self._infos.values()):
            self._blobs.path(sha256).unlink(missing_ok=True)
        return info

    def hashes(self) -> set[str]:
        """SHA-256 of every file that some job names."""
        return hashes_of(info.job for info in self._infos.values())


def _title(job: Job) -> str:
    """What a job is called where nobody gave it a title."""
    if isinstance(job, InstancesJob):
        return job.name or f"{len(job.instances)} instances"
    return " · ".join(ref.name for ref in job_files(job))
