"""The job `convert`: a checkpoint becomes the folder of its model.

    {"source": "/checkpoints/qwen", "precision": "int4", "group_size": 64}

A conversion makes a missing environment, exports into a draft folder beside the output, checks that
OpenVINO reads what was written, and renames the draft. A killed conversion can begin again: the
draft is removed, and an output is whole or not there. The output is named after the job, so a
restarted job finds a finished output.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil

from vinery_serving.models.convert import child
from vinery_serving.models.convert.checkpoint import Checkpoint, ConvertError, ConvertOptions, parse
from vinery_serving.models.convert.child import ChildFailed
from vinery_serving.models.convert.environments import (
    Environments,
    folder_bytes,
    pip_needs,
    python_of,
    torch_index,
)
from vinery_serving.models.jobs import JobDocument, Reporter
from vinery_serving.processes.calls import Act
from vinery_serving.processes.confine import Needs
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder

_EXPORTER: Final = (
    "from optimum.commands.optimum_cli import main; import sys; sys.argv[0] = 'optimum-cli'; main()"
)
_CHECK: Final = f"import sys; from {__name__} import check_loads as c; c(sys.argv[1])"
_SPARE_BYTES: Final = 1 << 30
_CHECK_TIMEOUT_S: Final = 600.0
_PROBE: Final = "Hello"

Write = Callable[[bytes], object]
"""Takes the output of programs, live."""


def run(document: JobDocument, reporter: Reporter) -> Mapping[str, Any]:
    """Raises `ConvertError`."""
    output = _output(document)
    if output.is_dir():  # finished by a process that was killed
        return {"folder": str(output)}
    try:
        return asyncio.run(_run(document, output, reporter))
    except asyncio.CancelledError:
        sys.exit("The conversion was cancelled.")


def needs(document: JobDocument) -> Needs:
    """What the job and its programs need together."""
    output, environments = _output(document).parent, document.home / "environments"
    for folder in (output, environments):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    of_pip, source = pip_needs(environments), document.parameters.get("source")
    return replace(
        of_pip,
        reads=(*(of_pip.reads or ()), *((Path(str(source)),) if source else ())),
        writes=(environments, output),
        acts=of_pip.acts | {Act.SIGNAL, Act.OUTLIVE},
    )


def discard(document: JobDocument) -> None:
    output = _output(document)
    _discard_drafts(output)
    shutil.rmtree(output, ignore_errors=True)


async def _run(document: JobDocument, output: Path, reporter: Reporter) -> Mapping[str, Any]:
    values = dict(document.parameters)
    source = Path(str(values.pop("source", "")))
    if not source.is_absolute():
        raise ConvertError("Name the folder of the checkpoint by its absolute path.")
    options = parse(values)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def write(output: bytes) -> None:
        sys.stderr.buffer.write(output)
        sys.stderr.flush()

    index = torch_index(os.environ.get("VINERY_JOB_TORCH_INDEX", "").strip())
    environments = Environments(document.home / "environments", index)
    return await convert(source, output, options, environments, reporter.progress, write)


def _output(document: JobDocument) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", document.model)
    precision = re.sub(r"\W+", "", str(document.parameters.get("precision", "int8")))
    return document.home / "models" / "converted" / f"{name}-{precision}-{document.job_id}"


async def convert(
    source: Path,
    output: Path,
    options: ConvertOptions,
    environments: Environments,
    report: Callable[[str], object],
    write: Write,
) -> dict[str, Any]:
    """Convert a checkpoint into a new folder, and return the result of the job. `report` gets the
    present stage.

    Raises `ConvertError`. On cancellation the programs end, and the draft is removed.
    """
    checkpoint = Checkpoint.read(source, options.task)
    _check_output(output, checkpoint)
    line = checkpoint.architecture.line
    report("preparing the environment")
    await environments.ensure(line, write)
    draft, _ = _drafts(output)
    _discard_drafts(output)
    try:
        with environments.used(line) as folder:
            report("converting")
            await _export(folder, checkpoint, output, options, write)
        report("checking the converted model")
        await _check(draft, write)
        _finish(draft, output)
    finally:
        _discard_drafts(output)
    return {
        "folder": str(output),
        "task": checkpoint.task,
        "line": line.name,
        "num_bytes": folder_bytes(output),
    }


async def _export(
    environment: Path, checkpoint: Checkpoint, output: Path, options: ConvertOptions, write: Write
) -> None:
    """Raises `ConvertError`."""
    draft, scratch = _drafts(output)
    words = options.arguments(checkpoint, draft)
    command = (str(python_of(environment)), "-c", _EXPORTER, "export", "openvino", *words)
    for folder in (draft, scratch):
        folder.mkdir(mode=0o700)
    needs = child.program_needs(
        (environment, python_of(environment)), (environment, checkpoint.folder), (draft, scratch)
    )
    variables = {
        # All files are local: a model must not fetch others.
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(scratch / "hub"),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",  # the log is live, and without bars
        "TQDM_DISABLE": "1",
    }
    memory_bytes = _memory_limit(options)
    try:
        await child.run(command, write, needs, memory_bytes=memory_bytes, variables=variables)
    except ChildFailed as error:
        raise ConvertError(
            f"The export of {checkpoint.architecture.model_type} failed. The exporter ended with: "
            f"{error.last_line}"
        ) from error


async def _check(draft: Path, write: Write) -> None:
    """Raises `ConvertError` for files that OpenVINO cannot read in a process of its own."""
    try:
        await child.run(
            (sys.executable, "-c", _CHECK, str(draft)),
            write,
            child.program_needs((Path(sys.executable),), (draft,)),
            timeout_s=_CHECK_TIMEOUT_S,
            variables={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except ChildFailed as error:
        raise ConvertError(f"The converted model cannot be loaded: {error.last_line}") from error
    except TimeoutError:
        raise ConvertError(
            f"OpenVINO did not read the converted model within {_CHECK_TIMEOUT_S:g} s."
        ) from None


def check_loads(folder: str) -> None:
    """Exit with the reason if OpenVINO does not read a converted model."""
    import openvino
    import openvino_genai

    try:
        ModelFolder.read(Path(folder))
        tokenizer = openvino_genai.Tokenizer(folder)
        if tokenizer.encode(_PROBE).input_ids.size == 0:
            raise UnusableFolder(f"The tokenizer of {folder} makes no tokens of {_PROBE!r}.")
        core = openvino.Core()
        for graph in sorted(Path(folder).glob("*.xml")):
            # The tokenizer's graphs need GenAI's extension, and were read above.
            if graph.stem not in ("openvino_tokenizer", "openvino_detokenizer"):
                core.read_model(graph)
    except (UnusableFolder, RuntimeError) as error:
        sys.exit(" ".join(str(error).split()))


def _check_output(output: Path, checkpoint: Checkpoint) -> None:
    if output.exists():
        raise ConvertError(f"{output} exists. Remove it, or choose another folder.")
    try:
        output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConvertError(f"{output.parent} cannot be made: {error.strerror}.") from None
    needed = 2 * checkpoint.num_bytes  # the output, and the exporter's fp16 files
    free = shutil.disk_usage(output.parent).free
    if free < needed:
        raise ConvertError(
            f"The conversion needs {needed / 2**30:.1f} GB of disk, and {output.parent} has "
            f"{free / 2**30:.1f} GB."
        )


def _memory_limit(options: ConvertOptions) -> int:
    of_server = os.environ.get("VINERY_JOB_MEMORY_MB", "").strip()
    if limit_mb := options.memory_limit_mb or int(of_server or 0):
        return limit_mb << 20
    return max(_SPARE_BYTES, psutil.virtual_memory().available - _SPARE_BYTES)


def _finish(draft: Path, output: Path) -> None:
    """Rename the draft. Its files reach the disk first."""
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


def _discard_drafts(output: Path) -> None:
    for folder in _drafts(output):
        shutil.rmtree(folder, ignore_errors=True)


def _drafts(output: Path) -> tuple[Path, Path]:
    draft = output.with_name(f".{output.name}.converting")
    return draft, draft.with_name(f"{draft.name}.scratch")
