"""The process of a template that came with a request: reads one task, answers, and ends.

Its limits are set before the task is read. Where the system has no such limits, the time
that its parent gives it is the only one.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from serving.core.errors import InvalidRequest, UnsupportedParameter
from serving.prompting.errors import UnusableFolder
from serving.prompting.render import ChatRenderer
from serving.prompting.template import ChatTemplate
from serving.prompting.untrusted import UntrustedAnswer, UntrustedTask

_MAX_MEMORY_BYTES: Final = 1 << 30
_MAX_CPU_S: Final = 5
# No model's context holds more, and the parent reads all of it.
_MAX_CHARS: Final = 16_000_000
_PARAM: Final = "chat_template"


def main() -> None:
    """From standard input to standard output."""
    _limit()
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=UntrustedTask)
    sys.stdout.buffer.write(msgspec.json.encode(_answer(task)))


def _answer(task: UntrustedTask) -> UntrustedAnswer:
    try:
        return _rendered(task)
    except UnusableFolder as error:
        return UntrustedAnswer(refusal=error.message, param=_PARAM)
    except InvalidRequest as error:
        return UntrustedAnswer(
            refusal=error.message,
            param=error.param,
            is_unsupported=isinstance(error, UnsupportedParameter),
        )
    except MemoryError:
        return UntrustedAnswer(refusal="The chat template takes too much memory.", param=_PARAM)


def _rendered(task: UntrustedTask) -> UntrustedAnswer:
    renderer = ChatRenderer(ChatTemplate(task.template, task.named_tokens))
    rendered = renderer.render(task.conversation)
    if len(rendered.text) > _MAX_CHARS:
        refusal = f"The chat template makes more than {_MAX_CHARS} characters."
        return UntrustedAnswer(refusal=refusal, param=_PARAM)
    return UntrustedAnswer(rendered.text, rendered.thinking_budget)


def _limit() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
