"""Jobs on SLURM, through submitit: one array, whose preempted jobs are requeued and continue."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpkd.errors import InputError, extra
from tpkd.executors.jobs import Executor, JobEvent, Work
from tpkd.executors.remote import RemoteJob, lost, this_place
from tpkd.executors.shared_files import leave_probe
from tpkd.executors.status import StatusReader, cancel_path, read_status
from tpkd.files import write_file

POLL_SECONDS = 0.5
SAVE_SECONDS = 600.0
FOLDER_NAME = "submitit"
"""Where submitit keeps its scripts, its own files and the output of every job."""
LOST_STATES = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REQUEUED")
"""States of a job that SLURM took away; it is submitted again."""
MAX_LOSSES = 10


class SlurmExecutor(Executor):
    """An array job of SLURM, or processes of submitit's local cluster to try it without one.

    Example:
        >>> SlurmExecutor(print, Path("runs/grid"), partition="gpu", minutes=240, gpus=1)  # doctest: +SKIP
    """

    def __init__(
        self,
        work: Work,
        directory: Path,
        *,
        cluster: str = "slurm",
        partition: str | None = None,
        minutes: int = 240,
        cpus: int = 1,
        gpus: int = 0,
        threads: int = 1,
        at_most: int = 0,
    ) -> None:
        """Check that there is a SLURM to submit to.

        Args:
            work: called on a node.
            directory: for the status files and submitit's; on a file system that all nodes share.
            cluster: `slurm`, or `local`.
            partition: of SLURM; default: its default.
            minutes: time limit of a job; one that reaches it is requeued and continues.
            cpus: cores of each job.
            gpus: GPUs of each job.
            threads: torch threads per job.
            at_most: jobs that run at the same time; 0 = as many as SLURM allows.
        """
        super().__init__(work)
        with extra("cluster"):
            import submitit
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise InputError(
                "--on slurm: expected the command sbatch on this machine, found none; run it on a login node, or "
                "try it with --submitit local"
            )
        self._directory, self._threads = directory.resolve(), threads
        self._at_most = at_most or (1 if cluster == "local" else 0)
        self._is_local = cluster == "local"
        self._executor = submitit.AutoExecutor(self._directory / FOLDER_NAME / "%j", cluster=cluster)
        own = {"slurm_partition": partition} if partition else {}
        if at_most:
            own["slurm_array_parallelism"] = at_most  # type: ignore[assignment]
        self._executor.update_parameters(
            name=f"tpkd-{directory.name}", timeout_min=minutes, cpus_per_task=cpus, gpus_per_node=gpus, **own
        )
        self._place = this_place(leave_probe(self._directory))
        self._jobs: dict[str, RemoteJob] = {}
        self._running: dict[str, Any] = {}
        self._losses: dict[str, int] = {}

    def submit(self, job: str, payload: Any) -> None:
        """Put a job at the end of the queue."""
        self._jobs[job] = RemoteJob(job, payload, self.work, self._threads, self._place)

    def events(self) -> Iterator[JobEvent]:
        """Run what was submitted; ends when every job has ended."""
        reader, waiting = StatusReader(self._directory, self._jobs), list(self._jobs)
        while waiting or self._running:
            # SLURM holds an array back by itself; submitit's local cluster would start everything at once.
            room = self._at_most - len(self._running) if self._is_local else len(waiting)
            self._start(waiting[:room])
            del waiting[: max(room, 0)]
            time.sleep(POLL_SECONDS)
            yield from reader.events()
            for job, handle in list(self._running.items()):
                if handle.done():
                    del self._running[job]
                    event = self._end(job, handle)
                    if event is None:
                        waiting.append(job)
                    else:
                        yield event

    def _start(self, jobs: list[str]) -> None:
        if not jobs:
            return
        with self._executor.batch():
            handles = [self._executor.submit(self._jobs[job]) for job in jobs]
        self._running |= dict(zip(jobs, handles, strict=True))

    def _end(self, job: str, handle: Any) -> JobEvent | None:
        """How a job ended; None if it is to be submitted again, because its node was taken away."""
        status = read_status(self._directory, job)
        if status is not None and status.kind in ("finished", "failed"):
            return JobEvent(status.kind, job, problem=status.problem, trace=status.trace, where=status.where)
        state = str(handle.state)
        self._losses[job] = self._losses.get(job, 0) + 1
        if state.startswith(LOST_STATES) and self._losses[job] <= MAX_LOSSES:
            return None
        logs = handle.paths.stderr
        return lost(job, self._directory, f"SLURM job {handle.job_id} ended as {state} without a result; see {logs}")

    def cancel(self) -> None:
        """Ask the jobs that still run to save and end, and take those back that wait."""
        if not self._running:
            return
        write_file(cancel_path(self._directory), "")
        end = time.monotonic() + SAVE_SECONDS
        while time.monotonic() < end and any(self._may_save(job, handle) for job, handle in self._running.items()):
            time.sleep(POLL_SECONDS)
        for handle in self._running.values():
            if not handle.done():
                handle.cancel()
        self._running.clear()

    def _may_save(self, job: str, handle: Any) -> bool:
        status = read_status(self._directory, job)
        return status is not None and status.is_running and not handle.done()
