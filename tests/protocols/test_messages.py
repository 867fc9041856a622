"""The bodies of Messages: turns, blocks, tools, reasoning, and the format of the answer."""

import base64
import json
from functools import partial
from typing import Any

import pytest

from tests.tables import table
from vinery_serving.core.dialects import V1
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import InlineSource, MediaKind, MediaPart, UrlSource
from vinery_serving.core.request import Endpoint, Message
from vinery_serving.protocols.messages.exchange import count_body, parse_count

from .exchanges import LEAST, conversation_of, message

DATA = base64.b64encode(b"picture").decode()

conversation = partial(conversation_of, Endpoint.MESSAGES)


def turns(*turns: tuple[str, Any]) -> tuple[Message, ...]:
    return conversation(
        messages=[{"role": role, "content": content} for role, content in turns]
    ).messages


RESULTS = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}]
PNG = {"type": "base64", "media_type": "image/png", "data": DATA}
PDF = {"type": "base64", "media_type": "application/pdf", "data": DATA}
LINK = {"type": "url", "url": "https://a.b/c.png"}


@table(
    "block, kind, source, member, filename",
    [
        ({"type": "image", "source": PNG}, MediaKind.IMAGE, InlineSource(b"picture"), "data", None),
        ({"type": "image", "source": LINK}, MediaKind.IMAGE, UrlSource(LINK["url"]), "url", None),
        (
            {"type": "document", "title": "a.pdf", "source": PDF},
            MediaKind.DOCUMENT,
            InlineSource(b"picture"),
            "data",
            "a.pdf",
        ),
    ],
)
def test_pictures_and_files_are_media_of_their_message(
    block: Any, kind: MediaKind, source: Any, member: str, filename: str | None
) -> None:
    param = f"messages[0].content[0].source.{member}"

    part = MediaPart(kind, source, param, filename=filename)
    assert turns(("user", [block]))[0].content == (part,)


def test_a_picture_in_a_result_names_its_field_and_no_result_is_in_an_answer() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": DATA}}
    sent = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}

    [part] = turns(("user", [sent]))[0].media

    assert part.param == "messages[0].content[0].content[0].source.data"

    with pytest.raises(InvalidRequest, match="of type tool_result, which has no meaning") as caught:
        turns(("assistant", RESULTS))

    assert caught.value.param == "messages[0].content[0]"


def test_counting_needs_no_limit_of_the_answer() -> None:
    body = {"messages": LEAST[Endpoint.MESSAGES]["messages"], "system": "Be kind."}

    request = parse_count(json.dumps(body).encode(), V1)

    assert request.prompt == message(system="Be kind.").prompt
    assert json.loads(count_body(7)) == {"input_tokens": 7}
