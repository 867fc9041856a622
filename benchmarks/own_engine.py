"""How a benchmark sets up and steps the engine's own classes in its process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from vinery_serving.engine.batch import StepResult
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.options import EngineOptions
from vinery_serving.transport.messages import SamplingParams, Submit

_DEADLINE_S: Final = 3600.0


def config_of(folder: Path, cache: Path, options: EngineOptions, **changes: Any) -> EngineConfig:
    """Return the config of the model in `folder`, with `changes` to the options."""
    # The model is loaded only once, so a cache of compiled models would be useless.
    plugin = {**options.plugin, "CACHE_DIR": ""}
    return EngineConfig(
        name="benchmark",
        folder=folder,
        device="CPU",
        socket_path=cache / "unused.sock",
        cache_dir=cache,
        max_context=0,
        options=msgspec.structs.replace(options, plugin=plugin, **changes),
    )


def greedy(
    prompt_ids: Sequence[int] | npt.NDArray[np.int32], num_tokens: int, *, ignore_eos: bool = False
) -> Submit:
    """Return a greedy request for `num_tokens` tokens at most."""
    return Submit(
        id=0,
        prompt_ids=np.array(prompt_ids, dtype="<i4").tobytes(),
        sampling=SamplingParams(),
        max_new_tokens=num_tokens,
        deadline_s=_DEADLINE_S,
        ignore_eos=ignore_eos,
    )


def keep(step: StepResult) -> None:
    """Add the tokens of a step to their generations. Raises RuntimeError if one failed."""
    for failed in step.failed:
        raise RuntimeError(failed.message)
    for new in step.generated:
        new.generation.tokens += new.token_ids
