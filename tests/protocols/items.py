"""The conversation of a Responses request."""

from typing import Any

from vinery_serving.core.request import Conversation, Message

from .exchanges import response


def conversation(**fields: Any) -> Conversation:
    prompt = response(**fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def turns(*items: Any) -> tuple[Message, ...]:
    return conversation(input=list(items)).messages


def assistant(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}
