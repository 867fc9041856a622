"""The job `convert`: a checkpoint becomes the folder of its model.

    {"source": "/checkpoints/qwen", "precision": "int4", "group_size": 64}

The folder is named after the job, so a job that is begun again finds what it had finished.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from vinery_serving.models.convert.conversion import (
    Progress,
    Workshop,
    as_result,
    convert,
    discard_drafts,
)
from vinery_serving.models.convert.environments import Environments
from vinery_serving.models.convert.errors import ConvertError
from vinery_serving.models.convert.options import ConvertOptions, parse
from vinery_serving.models.jobs.progress import JobDocument, JobFailed, Reporter

# Builds of torch without CUDA, which are ten times smaller.
_TORCH_INDEX: Final = "https://download.pytorch.org/whl/cpu"
_STAGES: Final = {
    "environment": "preparing the environment",
    "export": "converting",
    "check": "checking the converted model",
}


def torch_index(setting: str) -> str:
    """Return the index that VINERY_JOB_TORCH_INDEX means; empty: pip's own only."""
    return "" if setting == "none" else setting or _TORCH_INDEX


def run(document: JobDocument, reporter: Reporter) -> Mapping[str, Any]:
    """Raises JobFailed."""
    output = _output(document)
    if output.is_dir():  # a process that was killed had finished it
        return {"folder": str(output)}
    try:
        source, options = parameters_of(document.parameters)
        return asyncio.run(_run(document, source, output, options, reporter))
    except ConvertError as error:
        raise JobFailed(str(error)) from error
    except asyncio.CancelledError:
        sys.exit("The conversion was cancelled.")


def discard(document: JobDocument) -> None:
    """Delete what the job has made so far."""
    output = _output(document)
    discard_drafts(output)
    shutil.rmtree(output, ignore_errors=True)


def parameters_of(values: Mapping[str, Any]) -> tuple[Path, ConvertOptions]:
    """Raises `ConvertError`."""
    others = dict(values)
    source = Path(str(others.pop("source", "")))
    if not source.is_absolute():
        raise ConvertError("Name the folder of the checkpoint by its absolute path.")
    return source, parse(others)


async def _run(
    document: JobDocument,
    source: Path,
    output: Path,
    options: ConvertOptions,
    reporter: Reporter,
) -> Mapping[str, Any]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def report(progress: Progress) -> None:
        reporter.progress(_STAGES[progress.stage])

    def write(output: bytes) -> None:
        sys.stderr.buffer.write(output)
        sys.stderr.flush()

    workshop = _workshop(document.home)
    converted = await convert(source, output, options, workshop, report=report, write=write)
    return as_result(converted)


def _workshop(home: Path) -> Workshop:
    index = torch_index(os.environ.get("VINERY_JOB_TORCH_INDEX", "").strip())
    memory_mb = int(os.environ.get("VINERY_JOB_MEMORY_MB", "").strip() or 0)
    return Workshop(Environments(home / "environments", index), memory_mb << 20)


def _output(document: JobDocument) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", document.model)
    precision = re.sub(r"\W+", "", str(document.parameters.get("precision", "int8")))
    return document.home / "models" / "converted" / f"{name}-{precision}-{document.job_id}"
