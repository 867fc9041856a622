"""Runs one generation request on one engine, and survives the engine's death.

`stream` yields batches of events as they come; `whole` returns the result. Both end with
the error of the request, raised before anything was accepted and told as `Failed` after.
A request of which the client has seen nothing is run again when its engine dies.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from serving.core.errors import EngineLost, ServingError
from serving.core.events import Event, Failed, Started, TextDelta
from serving.core.request import Conversation, RawPrompts, Role
from serving.core.result import Result, ResultBuilder
from serving.flow.attempt import PreparedRequest, attempt
from serving.flow.best import the_best
from serving.flow.steering import num_top_of_prompt
from serving.transport.client import EngineDisconnected

# How often a request is run again after its engine died under it. More would let one
# request that kills engines kill them for everybody else.
MAX_RERUNS: Final = 2


async def stream(prepared: PreparedRequest) -> AsyncGenerator[list[Event], None]:
    """Batches of events; an empty one means that `SILENCE_S` passed without any.

    Raises `ServingError` before `Started`; afterwards errors are `Failed` events.
    """
    has_started = has_content = False
    for run in range(MAX_RERUNS + 1):
        try:
            async with aclosing(attempt(prepared)) as batches:
                async for events in batches:
                    is_start = bool(events) and isinstance(events[0], Started)
                    has_content = has_content or len(events) > is_start
                    if is_start:
                        # A run after the first starts anew, but its client has been told.
                        begun = [] if has_started else [events[0], *_echoes(prepared)]
                        events = [*begun, *events[1:]]
                    yield events
                    has_started = has_started or is_start
            return
        except EngineDisconnected:
            if has_content or run == MAX_RERUNS:
                error: ServingError = _lost()
            else:
                prepared.meter.restart()
                continue
        except ServingError as failure:
            error = failure
        if not has_started:
            raise error
        yield [Failed(error)]
        return


async def whole(prepared: PreparedRequest) -> Result:
    """The finished answer. Raises `ServingError`."""
    for _ in range(MAX_RERUNS + 1):
        fold = ResultBuilder()
        try:
            async with aclosing(attempt(prepared)) as batches:
                async for events in batches:
                    for event in events:
                        fold.feed(event)
                        if isinstance(event, Started):
                            for echo in _echoes(prepared):
                                fold.feed(echo)
            return the_best(
                fold.result(), num_candidates=prepared.request.n, num_returned=prepared.num_returned
            )
        except EngineDisconnected:
            prepared.meter.restart()
    raise _lost()


def _lost() -> EngineLost:
    return EngineLost("The engine was restarted while it ran this request. Send it again.")


def _echoes(prepared: PreparedRequest) -> list[Event]:
    """What stands before the answers of a request that wants its prompt back."""
    prompt, n = prepared.request.prompt, prepared.request.n
    if not prompt.echo:
        return []
    if isinstance(prompt, RawPrompts) and num_top_of_prompt(prepared.request) is not None:
        return []  # an echo with probabilities comes when they do
    if isinstance(prompt, Conversation):
        last = prompt.messages[-1] if prompt.messages else None
        is_begun = last is not None and last.role is Role.ASSISTANT
        texts = [last.text if last is not None and is_begun else ""]
    else:
        texts = [prepared.engine.assets.text_of(each) for each in prepared.prompts]
    choices = enumerate(text for text in texts for _ in range(n))
    return [TextDelta(choice, text) for choice, text in choices if text]
