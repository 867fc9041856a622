"""What a web process says of a request that runs. Without Django: the web server reads it, too."""

from enum import StrEnum

import msgspec

from vinery_accounts.usage.entries import Admission


class Stage(StrEnum):
    WAITING = "waiting"  # it is read, or waits for its model or for a slot of the engine
    PREFILLING = "prefilling"
    GENERATING = "generating"


class LiveRow(msgspec.Struct, frozen=True):
    admission: Admission
    stage: Stage
    num_prompt_tokens: int
    num_output_tokens: int
    tokens_per_s: float | None  # None: nothing is generated yet
