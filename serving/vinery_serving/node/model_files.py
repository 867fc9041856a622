"""What the node needs to know of a model's files, which a confined process reads: numbers of the
configuration, and whether the weights are whole, without loading.

A graph (`.xml`) names the offset of each constant in the weights file (`.bin`), and its size.
A copy that was cut is shorter than the end of the last constant.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import ParseError, iterparse

import msgspec

from vinery_serving.core.model_files import kv_numbers_of_token
from vinery_serving.processes.apart import NoAnswer, run_apart
from vinery_serving.prompting.folder import ModelFolder, UnusableFolder, read_object
from vinery_serving.prompting.pooling_folder import PoolingFolder

# Only this model waits for a busy machine or a slow disk.
_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the files of a model say about the engine."""

    kv_numbers: int = 0  # in the KV cache, of one token
    max_context: int | None = None
    pooling: PoolingFolder | None = None
    error: str = ""  # why no engine can start; empty: nothing is known to be wrong
    is_passing: bool = False  # the error may pass


async def read_facts(
    folders: Sequence[Path], *, generates: bool, checks_weights: bool
) -> EngineFacts:
    """Read the folder of a model, which is the first, and those of its options."""
    try:
        work = partial(find_facts, folders, generates=generates, checks_weights=checks_weights)
        answer = await run_apart(work, reads=folders, within_s=_WITHIN_S)
        return msgspec.json.decode(answer, type=EngineFacts)
    except (NoAnswer, OSError, msgspec.MsgspecError) as error:
        return EngineFacts(error=f"Reading the files of {folders[0]} {error}.", is_passing=True)


def find_facts(folders: Sequence[Path], *, generates: bool, checks_weights: bool) -> bytes:
    """Return `EngineFacts`. Only for a process that may be killed."""
    facts = EngineFacts(sum(map(_kv_numbers, folders)))
    try:
        folder = ModelFolder.read(folders[0], has_templates=False)
        facts = replace(facts, max_context=folder.max_context)
        if not generates:
            pooling = PoolingFolder.read(folder)
            facts = replace(facts, pooling=replace(pooling, prompts={}, default_prompt=""))
        for each in folders if checks_weights else ():
            check_weights(each)
    except (UnusableFolder, UnusableWeights, OSError) as error:
        facts = replace(facts, error=str(error), is_passing=isinstance(error, OSError))
    return msgspec.json.encode(facts)


def _kv_numbers(folder: Path) -> int:
    with suppress(UnusableFolder):
        return kv_numbers_of_token(read_object(folder / "config.json"))
    return 0


class UnusableWeights(Exception):
    """A weights file is missing or cut. The message names it, and what to do."""


def check_weights(folder: Path) -> None:
    """Raises UnusableWeights, or OSError for a file that cannot be read."""
    for graph in sorted(folder.glob("openvino_*.xml")):
        needed = _needed_bytes(graph)
        weights = graph.with_suffix(".bin")
        if needed and not weights.is_file():
            raise UnusableWeights(
                f"The weights file {weights.name} is missing in {folder}. Copy the folder again."
            )
        if needed and (size := weights.stat().st_size) < needed:
            raise UnusableWeights(
                f"The weights file {weights.name} is cut: it has {size:,} bytes, and the graph "
                f"needs {needed:,}. Copy the folder again."
            )


def _needed_bytes(graph: Path) -> int:
    """Return where the last constant ends; 0 without constants, and for a file that is no graph:
    loading reports such a file."""
    end, is_constant = 0, False
    try:
        for event, element in iterparse(graph, ("start", "end")):
            if event == "start" and element.tag == "layer":
                is_constant = element.get("type") == "Const"
            elif event == "end" and element.tag == "data" and is_constant:
                end = max(end, int(element.get("offset", 0)) + int(element.get("size", 0)))
            elif event == "end" and element.tag == "layer":
                element.clear()  # a large graph would take a hundred times its size
    except (ParseError, ValueError):
        return 0
    return end
