"""Runs a prepared request, and again if its engine fails before the client got any content."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from serving.core.errors import EngineLost, ServingError
from serving.core.events import Event, Failed, Started, TextDelta
from serving.core.request import Conversation, RawPrompts, Role
from serving.core.result import Result, ResultBuilder
from serving.flow.attempt import attempt
from serving.flow.candidates import best_choices
from serving.flow.grants import TokenSource
from serving.flow.logits import num_top_of_prompt
from serving.flow.prepared import PreparedRequest
from serving.transport.client import EngineDisconnected

# How often a request runs again after its engine failed. With more reruns, one request that
# crashes engines would interrupt the other requests more often.
MAX_RERUNS: Final = 2


async def stream(
    prepared: PreparedRequest, tokens: TokenSource | None = None
) -> AsyncGenerator[list[Event], None]:
    """Yield batches of events; an empty batch means `SILENCE_S` without events.

    Output tokens are reserved from `tokens`; None: they are not counted. Raises `ServingError`
    before `Started`; later errors are `Failed` events.
    """
    has_started = has_content = False
    for run in range(MAX_RERUNS + 1):
        try:
            async with aclosing(attempt(prepared, tokens)) as batches:
                async for events in batches:
                    if events and isinstance(events[0], Started):
                        start, *rest = events
                        has_content = has_content or bool(rest)
                        # The client has the start of the first run already.
                        yield rest if has_started else [start, *_echoes(prepared), *rest]
                        has_started = True
                    else:
                        has_content = has_content or bool(events)
                        yield events
            return
        except EngineDisconnected:
            if has_content or run == MAX_RERUNS:
                error: ServingError = _engine_lost()
            else:
                prepared.meter.restart()
                continue
        except ServingError as failure:
            error = failure
        if not has_started:
            raise error
        yield [Failed(error)]
        return


async def whole(prepared: PreparedRequest, tokens: TokenSource | None = None) -> Result:
    """Return the complete answer. `tokens` as in `stream`. Raises `ServingError`."""
    for _ in range(MAX_RERUNS + 1):
        builder = ResultBuilder()
        try:
            async with aclosing(attempt(prepared, tokens)) as batches:
                async for events in batches:
                    for event in events:
                        builder.feed(event)
                        if isinstance(event, Started):
                            for echo in _echoes(prepared):
                                builder.feed(echo)
            return best_choices(
                builder.result(),
                num_candidates=prepared.request.n,
                num_returned=prepared.num_returned,
            )
        except EngineDisconnected:
            prepared.meter.restart()
    raise _engine_lost()


def _engine_lost() -> EngineLost:
    return EngineLost("The engine was restarted while it ran this request. Send it again.")


def _echoes(prepared: PreparedRequest) -> list[Event]:
    """The texts before the answers of a request with `echo`."""
    prompt, n = prepared.request.prompt, prepared.request.n
    if not prompt.echo:
        return []
    if isinstance(prompt, RawPrompts) and num_top_of_prompt(prepared.request) is not None:
        return []  # an echo with log-probabilities comes with them
    if isinstance(prompt, Conversation):
        last = prompt.messages[-1] if prompt.messages else None
        texts = [last.text if last is not None and last.role is Role.ASSISTANT else ""]
    else:
        texts = [prepared.engine.assets.text_of(each) for each in prepared.prompts]
    choices = enumerate(text for text in texts for _ in range(n))
    return [TextDelta(choice, text) for choice, text in choices if text]
