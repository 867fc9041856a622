"""Renders by a template that came with a request, in a process that may be killed.

Jinja's sandbox keeps such a template from the server's objects, but not from looping for
ever or from making texts that fill the memory. So it runs in a process of its own, which
is given the conversation and nothing else, no environment and no open files, is bounded
in memory, and ends with its time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from serving.core.errors import InvalidRequest, Overloaded, UnsupportedParameter
from serving.core.request import Conversation
from serving.prompting.render import Rendered

# A conversation is rendered in milliseconds; the rest is for the start of a process on a
# busy machine.
TIME_LIMIT_S: Final = 5.0
# How many may run at the same time, for all requests of this process. More would take the
# machine from the engines.
MAX_UNTRUSTED_PROCESSES: Final = 2


class UntrustedTask(msgspec.Struct, frozen=True):
    """What the process is told."""

    template: str
    named_tokens: Mapping[str, str]
    conversation: Conversation


class UntrustedAnswer(msgspec.Struct, frozen=True):
    """What it answers: a text, or why there is none."""

    text: str = ""
    thinking_budget: int | None = None
    refusal: str | None = None
    param: str | None = None
    is_unsupported: bool = False


class UntrustedTemplates:
    """Runs templates of requests, few at a time."""

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._num_running = 0

    async def render(self, conversation: Conversation, named_tokens: Mapping[str, str]) -> Rendered:
        """Raises `InvalidRequest` for what the template refuses or cannot do in time, and
        `Overloaded` while too many others run."""
        template = conversation.rendering.template
        assert template is not None
        if self._num_running >= MAX_UNTRUSTED_PROCESSES:
            raise Overloaded("Too many requests with templates of their own; try again shortly.")
        task = UntrustedTask(template, named_tokens, conversation)
        self._num_running += 1
        try:
            said = await self._run(msgspec.json.encode(task))
        finally:
            self._num_running -= 1
        answer = _answer(said)
        if answer.refusal is not None:
            kind = UnsupportedParameter if answer.is_unsupported else InvalidRequest
            raise kind(answer.refusal, param=answer.param)
        return Rendered(answer.text, answer.thinking_budget)

    async def _run(self, task: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "serving.prompting.untrusted_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            async with asyncio.timeout(self._time_limit_s):
                said, _ = await process.communicate(task)
            return said
        except TimeoutError:
            return b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _answer(said: bytes) -> UntrustedAnswer:
    """What a process said; one that was ended before has said nothing whole."""
    try:
        return msgspec.json.decode(said, type=UntrustedAnswer)
    except msgspec.DecodeError:
        return UntrustedAnswer(
            refusal="The chat template takes too long or too much memory.", param="chat_template"
        )
