"""What the node needs to know of a model's files: numbers of the configuration, which a confined
process reads."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

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


async def read_facts(folders: Sequence[Path], *, generates: bool) -> EngineFacts:
    """Read the folder of a model, which is the first, and those of its options."""
    try:
        work = partial(find_facts, folders, generates=generates)
        answer = await run_apart(work, reads=folders, within_s=_WITHIN_S)
        return msgspec.json.decode(answer, type=EngineFacts)
    except (NoAnswer, OSError, msgspec.MsgspecError) as error:
        return EngineFacts(error=f"Reading the files of {folders[0]} {error}.", is_passing=True)


def find_facts(folders: Sequence[Path], *, generates: bool) -> bytes:
    """Return `EngineFacts`. Only for a process that may be killed."""
    facts = EngineFacts(sum(map(_kv_numbers, folders)))
    try:
        folder = ModelFolder.read(folders[0], has_templates=False)
        facts = replace(facts, max_context=folder.max_context)
        if not generates:
            pooling = PoolingFolder.read(folder)
            facts = replace(facts, pooling=replace(pooling, prompts={}, default_prompt=""))
    except (UnusableFolder, OSError) as error:
        facts = replace(facts, error=str(error), is_passing=isinstance(error, OSError))
    return msgspec.json.encode(facts)


def _kv_numbers(folder: Path) -> int:
    with suppress(UnusableFolder):
        return kv_numbers_of_token(read_object(folder / "config.json"))
    return 0
