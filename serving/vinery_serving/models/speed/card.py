"""The speed card of a model that is served: several numbers of streams, one after the other."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from vinery_serving.models.speed.measuring import Engine, MeasurementFailed, Run, memory_bytes
from vinery_serving.models.speed.texts import Encode, prompt_ids
from vinery_serving.transport.messages import Hello

STREAMS: Final = (1, 4, 16)
_PROMPT_TOKENS: Final = 256
_OUTPUT_TOKENS: Final = 64
_WARM_UP_TOKENS: Final = 8
_PING_TIMEOUT_S: Final = 60.0


class SpeedPoint(msgspec.Struct, frozen=True):
    """The speed with one number of streams. Tokens per second are of all streams together."""

    streams: int
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    first_token_s: float  # the median
    memory_bytes: int  # of the engine's process

    @classmethod
    def of(cls, run: Run, pid: int) -> "SpeedPoint":
        return cls(
            streams=len(run.answers),
            prompt_tokens_per_s=round(run.prompt_tokens_per_s, 2),
            output_tokens_per_s=round(run.output_tokens_per_s, 2),
            first_token_s=round(run.first_token_s, 4),
            memory_bytes=memory_bytes(pid),
        )


class SpeedCard(msgspec.Struct, frozen=True):
    """What one measurement has found."""

    points: tuple[SpeedPoint, ...]
    num_prompt_tokens: int  # of each request
    num_output_tokens: int
    num_other_tokens: int  # that clients used meanwhile: they made the measured requests slower

    def as_json(self) -> dict[str, Any]:
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values


async def measure(
    engine: Engine, encode: Encode, report: Callable[[int], object], *, seed: int
) -> SpeedCard:
    """Measure an engine beside its other requests. `report` gets each number of streams. Another
    `seed` gives other prompts, so that none is in the prefix cache.

    Raises `MeasurementFailed`, EngineDisconnected and TimeoutError.
    """
    hello = engine.client.hello
    assert hello is not None
    num_prompt, num_output = _lengths(hello)
    before = (await engine.client.ping(_PING_TIMEOUT_S)).tokens.num_output_tokens
    await engine.run([prompt_ids(encode, seed, num_prompt)], _WARM_UP_TOKENS)
    points = []
    for streams in STREAMS:
        if streams > hello.max_running:
            break
        report(streams)
        first = seed + 100 * streams
        prompts = [prompt_ids(encode, first + at, num_prompt) for at in range(streams)]
        points.append(SpeedPoint.of(await engine.run(prompts, num_output), hello.pid))
    after = (await engine.client.ping(_PING_TIMEOUT_S)).tokens.num_output_tokens
    num_others = max(0, after - before - engine.num_own_tokens)
    return SpeedCard(tuple(points), num_prompt, num_output, num_others)


def _lengths(hello: Hello) -> tuple[int, int]:
    """Return the tokens of a prompt and of an output; less for a short context."""
    room = hello.max_context or _PROMPT_TOKENS * 2
    num_output = min(_OUTPUT_TOKENS, room // 4)
    num_prompt = min(_PROMPT_TOKENS, room // 2)
    if min(num_output, num_prompt) < 1:
        raise MeasurementFailed(f"A context of {hello.max_context} tokens is too short to measure.")
    return num_prompt, num_output
