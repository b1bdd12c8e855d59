"""A Snakemake executor whose jobs are tasks of amfs.

Owns the exchange between the two: the command of a job, and how its end is told. A job with a plain ``shell`` directive is one process,
the shell; other jobs (``run``, ``script``, ``wrapper``, containers, Conda, benchmarks, groups) start Snakemake once more, as with other
executors. Files are where Snakemake looks for them: in the working directory, on a file system that all nodes see.
"""

import queue
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Optional

from snakemake.shell import shell
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, DeploymentMethod, ExecMode, ExecutorSettingsBase

from amfs.errors import AmfsError
from amfs.runs.api import Handle, Session
from amfs.workflow.workflow import Task

ENDS_S = 30.0  # for what is left to be told when the run is over

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
)


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    session: Optional[str] = field(  # noqa: UP045  (Snakemake calls the type)
        default=None, metadata={"help": "Session of amfs to run in (a name, or the path of a session file). Default: this machine alone."}
    )
    slots: Optional[int] = field(  # noqa: UP045
        default=None, metadata={"help": "Jobs at a time on this machine, without a session. Default: one for each usable CPU."}
    )

    def __post_init__(self) -> None:
        if self.slots is not None and (self.slots < 1 or self.session is not None):
            raise WorkflowError("--amfs-slots is a number from 1, and is given without --amfs-session")


class Executor(RealExecutor):
    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        try:
            self.session = Session(slots=settings.slots, session=settings.session, base=self.workflow.workdir_init)
        except AmfsError as error:
            raise WorkflowError(f"amfs: {error}") from None
        self._running: dict[int, SubmittedJobInfo] = {}  # index of the task -> its job
        self._early: dict[int, Handle] = {}  # ended before they were known here
        self._lock = threading.Lock()
        self._ended: queue.SimpleQueue[tuple[SubmittedJobInfo, Handle] | None] = queue.SimpleQueue()
        self._cancelled = False
        self._count = 0
        self.session.on_ended = self._on_ended
        self._teller = threading.Thread(target=self._tell, name="amfs jobs", daemon=True)
        self._teller.start()

    # ── jobs ───────────────────────────────────────────────────────────────────────────────────────

    def run_job(self, job: Any) -> None:
        self.run_jobs([job], announced=True)

    def run_jobs(self, jobs: list[Any], announced: bool = False) -> None:
        """All that are ready at once, so that the loop of the session is asked once."""
        tasks = []
        for job in jobs:
            if not announced:
                self.run_job_pre(job)
            if direct := self._is_direct(job):
                self.workflow.async_run(job.prepare())
            command = self._shell_words(job) if direct else ("/bin/bash", "-c", self.format_job_exec(job))
            tasks.append(self._task(job, command))
        infos = [SubmittedJobInfo(job=job, external_jobid=task.id) for job, task in zip(jobs, tasks, strict=True)]
        for info in infos:
            self.report_job_submission(info)
        try:
            handles = self.session.submit_tasks(tasks)
        except AmfsError as error:
            for info in infos:
                self.report_job_error(info, msg=f"amfs: {error}")
            return
        with self._lock:
            for info, handle in zip(infos, handles, strict=True):
                if (ended := self._early.pop(handle.index, None)) is not None:
                    self._ended.put((info, ended))
                else:
                    self._running[handle.index] = info

    def _is_direct(self, job: Any) -> bool:
        """Is the job just a shell command?"""
        return (
            not job.is_group()
            and job.is_shell
            and not job.is_shadow
            and job.benchmark is None
            and not job.is_pipe
            and not (self.workflow.workflow_settings.cache is not None and job.rule.cache)
            and not self._deploys(job)
            and "<TBD>" not in job.shellcmd  # known to the node only, as {resources.tmpdir}
            and not self._is_foreign_storage(job)
        )

    def _deploys(self, job: Any) -> bool:
        methods = self.workflow.deployment_settings.deployment_method
        return bool(
            (DeploymentMethod.CONDA in methods and job.conda_env)
            or (DeploymentMethod.APPTAINER in methods and job.container_img_url)
            or (DeploymentMethod.ENV_MODULES in methods and job.env_modules)
        )

    def _is_foreign_storage(self, job: Any) -> bool:
        return any(getattr(file, "is_storage", False) for file in (*job.input, *job.output))

    def _shell_words(self, job: Any) -> tuple[str, ...]:
        resources = job.resources
        program = resources.get("shell_exec") or shell.get_executable() or "/bin/bash"
        prefix = shell._get_process_prefix(program)
        return (program, "-c", f"{prefix}{job.shellcmd.strip()}{shell._process_suffix}")

    def _task(self, job: Any, words: tuple[str, ...]) -> Task:
        resources = job.resources
        memory, minutes = resources.get("mem_mb"), resources.get("runtime")
        self._count += 1
        return Task(
            f"{job.name}-{job.jobid}-{self._count}",
            words,
            staged=False,
            env=self._environment(job),
            cores=max(1, int(job.threads if not job.is_group() else resources.get("_cores", 1))),
            memory=int(memory) * 1_000_000 if isinstance(memory, (int, float)) else 0,
            time_limit=float(minutes) * 60 if isinstance(minutes, (int, float)) else 0.0,
            retries=0,  # Snakemake counts them
            label=job.name,
        )

    def _environment(self, job: Any) -> tuple[str, ...]:
        """What Snakemake's own shell sets."""
        if job.is_group():
            return ()
        place = job.resources.get("tmpdir")
        return (
            *(f"{name}_NUM_THREADS={job.threads}" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")),
            f"VECLIB_MAXIMUM_THREADS={job.threads}",
            *(f"{name}={place}" for name in ("TMPDIR", "TMP", "TEMPDIR", "TEMP") if isinstance(place, str)),
        )

    # ── their ends ─────────────────────────────────────────────────────────────────────────────────

    def _on_ended(self, handle: Handle) -> None:
        """In the loop's thread, which must not wait: Snakemake's callbacks do."""
        with self._lock:
            info = self._running.pop(handle.index, None)
            if info is None:
                self._early[handle.index] = handle
            else:
                self._ended.put((info, handle))

    def _tell(self) -> None:
        while (ended := self._ended.get()) is not None:
            info, handle = ended
            if self._cancelled:
                continue
            if handle.ok:
                self.report_job_success(info)
            else:
                self.report_job_error(info, msg=self.session.why(handle))

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def cancel(self) -> None:
        """Kill what runs."""
        self._cancelled = True
        self.session.stop("cancelled by Snakemake")
        self._ended.put(None)

    def shutdown(self) -> None:
        if not self._cancelled:
            self._ended.put(None)
            self._teller.join(ENDS_S)
            self.session.close()

    # ── how Snakemake is started for jobs that need it ─────────────────────────────────────────────

    @property
    def cores(self) -> int | str:
        cores = self.workflow.resource_settings.cores
        return cores if cores is not None and cores != sys.maxsize else "all"

    def get_exec_mode(self) -> ExecMode:
        return ExecMode.REMOTE

    def get_python_executable(self) -> str:
        return sys.executable
