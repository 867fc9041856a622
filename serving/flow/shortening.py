"""Makes a conversation fit by leaving out its oldest turns: `truncation: auto`.

Instructions stay, and so do the last question and the newest turn, because without them
there is nothing to answer. What came before the last question goes question by question,
each with all that it led to, so that what is left begins with a question again, as many
templates demand; what came after it goes turn by turn. A call goes together with its output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from serving.core.request import Conversation, Message, Role
from serving.prompting.assets import Prompt

_INSTRUCTING = (Role.SYSTEM, Role.DEVELOPER)


async def shortened(
    conversation: Conversation,
    render: Callable[[Conversation], Awaitable[Prompt]],
    *,
    max_num_tokens: int,
) -> Prompt | None:
    """The prompt of the longest shorter conversation that has at most `max_num_tokens`, or
    else of the shortest. None when nothing may be left out.

    Renders about log2 of the number of turns times: how many tokens a part has is known only
    once it is rendered. Raises `InvalidRequest` as `render` does.
    """
    stretches = droppable(conversation.messages)
    if not stretches:
        return None
    best = await render(_without(conversation, stretches))
    too_few, enough = 0, len(stretches)  # how many stretches to leave out
    if best.num_tokens > max_num_tokens:
        return best
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        prompt = await render(_without(conversation, stretches[:middle]))
        if prompt.num_tokens <= max_num_tokens:
            best, enough = prompt, middle
        else:
            too_few = middle
    return best


def _without(conversation: Conversation, stretches: Sequence[Sequence[int]]) -> Conversation:
    dropped = {at for stretch in stretches for at in stretch}
    kept = [message for at, message in enumerate(conversation.messages) if at not in dropped]
    return replace(conversation, messages=tuple(kept))


def droppable(messages: Sequence[Message]) -> list[list[int]]:
    """The indexes of the messages that may be left out, oldest first, in stretches that go
    together."""
    questions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    last_question = questions[-1] if questions else -1
    answered_at = {
        message.tool_call_id: at for at, message in enumerate(messages) if message.tool_call_id
    }
    stretches: list[list[int]] = []
    last_output = -1  # where the last output of the calls so far stands
    for at, message in enumerate(messages):
        begins = message.role is Role.USER if at < last_question else message.role is not Role.TOOL
        if message.role not in _INSTRUCTING and at != last_question:
            if not stretches or (begins and at > last_output):
                stretches.append([])
            stretches[-1].append(at)
        outputs = [answered_at.get(call.id, -1) for call in message.tool_calls]
        last_output = max(last_output, *outputs, -1)
    if stretches and stretches[-1][-1] == len(messages) - 1:
        stretches.pop()
    return stretches
