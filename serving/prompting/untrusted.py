"""Renders chat templates that came with a request, in a process with limits.

Jinja's sandbox keeps such a template from the server's objects, but not from endless loops or
texts that fill the memory. So each runs in a process of its own: `python -m` this module. The
process gets the conversation, no environment and no open files. Its memory and its time are
limited. On systems without such limits only the parent's timeout applies.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from serving.core.errors import InvalidRequest, Overloaded, UnsupportedParameter
from serving.core.request import Conversation
from serving.prompting.folder import UnusableFolder
from serving.prompting.render import ChatRenderer, Rendered
from serving.prompting.template import ChatTemplate

# Rendering takes milliseconds; the rest is for starting a process on a busy machine.
TIME_LIMIT_S: Final = 5.0
# How many run at the same time for all requests of this web process. More would take CPU time
# from the engines.
MAX_UNTRUSTED_PROCESSES: Final = 2

_MAX_MEMORY_BYTES: Final = 1 << 30
_MAX_CPU_S: Final = 5
# Longer than any model's context.
_MAX_CHARS: Final = 16_000_000


class UntrustedTask(msgspec.Struct, frozen=True):
    """The input of the process."""

    template: str
    named_tokens: Mapping[str, str]
    conversation: Conversation


class UntrustedAnswer(msgspec.Struct, frozen=True):
    """The output of the process: a text, or a refusal."""

    text: str = ""
    reasoning_budget: int | None = None
    refusal: str | None = None
    param: str | None = None
    is_unsupported: bool = False


class UntrustedTemplates:
    """Runs the templates of requests, a few at a time."""

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._num_running = 0

    async def render(self, conversation: Conversation, named_tokens: Mapping[str, str]) -> Rendered:
        """Raises `InvalidRequest` for what the template refuses or cannot do within its limits,
        and `Overloaded` while too many others run."""
        template = conversation.rendering.template
        assert template is not None
        if self._num_running >= MAX_UNTRUSTED_PROCESSES:
            raise Overloaded("Too many requests with templates of their own; try again shortly.")
        task = UntrustedTask(template, named_tokens, conversation)
        self._num_running += 1
        try:
            output = await self._run(msgspec.json.encode(task))
        finally:
            self._num_running -= 1
        try:
            answer = msgspec.json.decode(output, type=UntrustedAnswer)
        except msgspec.DecodeError:
            # The output of a process that was killed is not complete JSON.
            answer = _refused("The chat template takes too long or too much memory.")
        if answer.refusal is not None:
            kind = UnsupportedParameter if answer.is_unsupported else InvalidRequest
            raise kind(answer.refusal, param=answer.param)
        return Rendered(answer.text, answer.reasoning_budget)

    async def _run(self, task: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "serving.prompting.untrusted",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            async with asyncio.timeout(self._time_limit_s):
                output, _ = await process.communicate(task)
            return output
        except TimeoutError:
            return b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _refused(reason: str) -> UntrustedAnswer:
    return UntrustedAnswer(refusal=reason, param="chat_template")


def _answer(task: UntrustedTask) -> UntrustedAnswer:
    try:
        renderer = ChatRenderer(ChatTemplate(task.template, task.named_tokens))
        rendered = renderer.render(task.conversation)
    except UnusableFolder as error:
        return _refused(str(error))
    except InvalidRequest as error:
        is_unsupported = isinstance(error, UnsupportedParameter)
        return UntrustedAnswer(
            refusal=error.message, param=error.param, is_unsupported=is_unsupported
        )
    except MemoryError:
        return _refused("The chat template takes too much memory.")
    if len(rendered.text) > _MAX_CHARS:
        return _refused(f"The chat template renders more than {_MAX_CHARS} characters.")
    return UntrustedAnswer(rendered.text, rendered.reasoning_budget)


def _limit_process() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for limit, value in (
        (resource.RLIMIT_AS, _MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, _MAX_CPU_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))


def main() -> None:
    """Render one task from standard input to standard output, within the limits."""
    _limit_process()
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=UntrustedTask)
    sys.stdout.buffer.write(msgspec.json.encode(_answer(task)))


if __name__ == "__main__":
    main()
