"""Explain tasks that Slurm killed at the memory limit of their job."""

from __future__ import annotations

from memscope.analysis.diagnosis.explanation import Advice, Diagnosis, Explanation
from memscope.analysis.diagnosis.log.linux import NOT_THE_DEVICE, less_host_memory
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.slurm import SLURM_JOB, SlurmMessage
from memscope.text import clean

_NAME_CHARACTERS = 80
_RAISE_LIMIT = Advice(
    "sbatch --mem=... or --mem-per-cpu=... higher", "host memory that the job may use"
)


def explain(message: SlurmMessage, context: LogContext) -> Explanation:
    """Explain one kill."""
    name = clean(message.detail, _NAME_CHARACTERS)
    name = name or (f"job {message.job}" if message.job else "a task of the job")
    job = message.job or context.options.get(SLURM_JOB, "JOB")
    return Explanation(
        diagnosis=Diagnosis.NOT_DEVICE_MEMORY,
        why=(
            f"Host memory ran out, not GPU memory: Slurm killed {name} at the job's memory limit."
        ),
        help=(_RAISE_LIMIT, *less_host_memory()),
        no_help=NOT_THE_DEVICE,
        unknown=(
            f"the limit, and how much was held: sacct -j {job} --format=JobID,State,ReqMem,MaxRSS",
            "what it used the memory for",
        ),
    )
