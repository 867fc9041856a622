"""A conversion from its checkpoint to the finished folder.

It makes the environment if it is missing, exports into a draft folder beside the output, checks
that OpenVINO reads what was written, and renames the draft. Killed at any moment, it can begin
again: a draft is removed, and an output is whole or not there.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from vinery_serving.models.convert import child
from vinery_serving.models.convert.checkpoint import Checkpoint
from vinery_serving.models.convert.child import ChildFailed, ChildLimits
from vinery_serving.models.convert.environments import Environment, Environments
from vinery_serving.models.convert.errors import ConvertError
from vinery_serving.models.convert.failures import explained
from vinery_serving.models.convert.options import ConvertOptions

_EXPORTER: Final = (
    "from optimum.commands.optimum_cli import main; import sys; sys.argv[0] = 'optimum-cli'; main()"
)
# Of the weights, for the output and the exporter's files beside it: they are written as fp16 first.
_DISK_FACTOR: Final = 2.0
_SPARE_BYTES: Final = 1 << 30
_CHECK_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What the conversion does now: `environment`, `export` or `check`."""

    stage: str


@dataclass(frozen=True, slots=True)
class Converted:
    """A finished conversion."""

    folder: Path
    task: str
    line: str
    num_bytes: int
    peak_memory_bytes: int
    took_s: float


@dataclass(frozen=True, slots=True)
class Workshop:
    """What conversions of this server share. `memory_limit_bytes` 0: what is free at its start."""

    environments: Environments
    memory_limit_bytes: int = 0


async def convert(
    source: Path,
    output: Path,
    options: ConvertOptions,
    workshop: Workshop,
    *,
    report: Callable[[Progress], object],
    write: Callable[[bytes], object],
) -> Converted:
    """Convert a checkpoint into a new folder. `write` gets the output of all programs, live.

    Raises `ConvertError`. When it is cancelled, its programs are ended and its draft is removed.
    """
    began_s = time.monotonic()
    checkpoint = Checkpoint.read(source, options.task)
    _check_output(output, checkpoint)
    line = checkpoint.architecture.line
    report(Progress("environment"))
    await workshop.environments.ensure(line, write)
    draft = _draft(output)
    discard_drafts(output)
    try:
        with workshop.environments.used(line) as environment:
            report(Progress("export"))
            limits = ChildLimits(_memory_limit(options, workshop))
            peak = await _export(environment, checkpoint, draft, options, limits, write)
        report(Progress("check"))
        await _check(draft, write)
        _finish(draft, output)
    finally:
        discard_drafts(output)
    took_s = time.monotonic() - began_s
    return Converted(output, checkpoint.task, line.name, _size(output), peak, took_s)


async def _export(
    environment: Environment,
    checkpoint: Checkpoint,
    draft: Path,
    options: ConvertOptions,
    limits: ChildLimits,
    write: Callable[[bytes], object],
) -> int:
    """Returns the most memory that the exporter had, in bytes. Raises `ConvertError`."""
    words = options.arguments(checkpoint, draft)
    command = (str(environment.python), "-c", _EXPORTER, "export", "openvino", *words)
    scratch = _scratch(draft)
    scratch.mkdir(mode=0o700)
    variables = {
        # All files are here: a model that names others must not fetch them.
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(scratch / "hub"),
        "TMPDIR": str(scratch),
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",  # the log is live, and without bars
        "TQDM_DISABLE": "1",
    }
    try:
        return await child.run(command, write, limits, variables=variables)
    except ChildFailed as error:
        raise ConvertError(explained(error, checkpoint)) from error


async def _check(draft: Path, write: Callable[[bytes], object]) -> None:
    """Raises `ConvertError` for files that OpenVINO cannot read."""
    command = (sys.executable, "-m", "vinery_serving.models.convert.load_check", str(draft))
    try:
        await child.run(
            command,
            write,
            ChildLimits(timeout_s=_CHECK_TIMEOUT_S),
            variables={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except ChildFailed as error:
        raise ConvertError(f"The converted model cannot be loaded: {error.last_line}") from error
    except TimeoutError:
        raise ConvertError(
            f"OpenVINO did not read the converted model within {_CHECK_TIMEOUT_S:g} s."
        ) from None


def _check_output(output: Path, checkpoint: Checkpoint) -> None:
    if output.exists():
        raise ConvertError(f"{output} exists. Remove it, or choose another folder.")
    try:
        output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConvertError(f"{output.parent} cannot be made: {error.strerror}.") from None
    needed = int(checkpoint.num_bytes * _DISK_FACTOR)
    free = shutil.disk_usage(output.parent).free
    if free < needed:
        raise ConvertError(
            f"The conversion needs {_in_gb(needed)} GB of disk, and {output.parent} has "
            f"{_in_gb(free)} GB."
        )


def _memory_limit(options: ConvertOptions, workshop: Workshop) -> int:
    if options.memory_limit_mb:
        return options.memory_limit_mb << 20
    if workshop.memory_limit_bytes:
        return workshop.memory_limit_bytes
    return max(_SPARE_BYTES, psutil.virtual_memory().available - _SPARE_BYTES)


def _finish(draft: Path, output: Path) -> None:
    """Give the draft its name. Its files reach the disk first."""
    for path in (*draft.iterdir(), draft):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    try:
        draft.rename(output)
    except OSError as error:
        raise ConvertError(f"{output} cannot be made: {error.strerror}.") from None


def discard_drafts(output: Path) -> None:
    """Delete what an unfinished conversion has left beside its output."""
    draft = _draft(output)
    for folder in (draft, _scratch(draft)):
        shutil.rmtree(folder, ignore_errors=True)


def _draft(output: Path) -> Path:
    return output.with_name(f".{output.name}.converting")


def _scratch(draft: Path) -> Path:
    return draft.with_name(f"{draft.name}.scratch")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _in_gb(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f}"


def as_result(converted: Converted) -> dict[str, Any]:
    """Return it as the result of a job."""
    return {
        "folder": str(converted.folder),
        "task": converted.task,
        "line": converted.line,
        "num_bytes": converted.num_bytes,
        "peak_memory_bytes": converted.peak_memory_bytes,
        "took_s": round(converted.took_s, 1),
    }
