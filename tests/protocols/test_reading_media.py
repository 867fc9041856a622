"""Pictures, videos and files in the messages of chats and in the items of Responses."""

import base64
import json
from contextlib import suppress
from typing import Any, get_args

import pytest
from pydantic import BaseModel, PlainValidator

from tests.tables import table
from vinery_accounts.captures.documents import without_files
from vinery_serving.core import field_limits, media
from vinery_serving.core.dialects import V1, V3, Dialect
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import Conversation, Endpoint, Role, TextPart
from vinery_serving.protocols.openapi import BODIES
from vinery_serving.protocols.tokens import TokenizeBody, parse_tokenize

from .exchanges import request

CHAT, RESPONSES = Endpoint.CHAT, Endpoint.RESPONSES
FIELDS = {CHAT: "messages", RESPONSES: "input"}
DATA = b"\x89PNG\r\n\xff\xfe\xfd"
INLINE = "data:image/png;base64," + base64.b64encode(DATA).decode()
URL = "https://example.com/a.png"
PICTURE = {"type": "image_url", "image_url": {"url": INLINE}}


def picture(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": url}


def sent(endpoint: Endpoint, *parts: Any, dialect: Dialect = V1, role: str = "user") -> Any:
    messages = [{"role": role, "content": [{"type": "text", "text": "See:"}, *parts]}]
    return request(endpoint, dialect, **{FIELDS[endpoint]: messages})


def only(endpoint: Endpoint, part: Any, dialect: Dialect = V1) -> media.MediaPart:
    """The part, which is the second of the first message."""
    read = sent(endpoint, part, dialect=dialect)
    (found,) = read.media
    assert isinstance(read.prompt, Conversation)
    assert read.prompt.messages[0].content == (TextPart("See:"), found)
    assert isinstance(found, media.MediaPart)
    return found


def refusal(endpoint: Endpoint, part: Any, dialect: Dialect = V1) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        sent(endpoint, part, dialect=dialect)
    return caught.value


@table("endpoint", FIELDS)
@table("kind", ["image_url", "input_image"])
@table("is_object", [True, False])
def test_every_endpoint_reads_every_form_of_a_picture(
    endpoint: Endpoint, kind: str, is_object: bool
) -> None:
    part = only(endpoint, {"type": kind, "image_url": {"url": INLINE} if is_object else INLINE})

    assert part.kind is media.MediaKind.IMAGE
    assert part.source == media.InlineSource(DATA)
    assert part.detail is media.Detail.AUTO
    assert part.param == f"{FIELDS[endpoint]}[0].content[1].image_url"


def test_detail_stands_beside_the_url_or_beside_the_object() -> None:
    details = {"auto": "auto", "low": "low", "high": "high", "original": "high", None: "auto"}
    for named, detail in details.items():
        inside = {"type": "image_url", "image_url": {"url": URL, "detail": named}}
        beside = {"type": "input_image", "image_url": URL, "detail": named}

        assert only(CHAT, inside).detail is media.Detail(detail)
        assert only(RESPONSES, beside).detail is media.Detail(detail)


@table("endpoint", FIELDS)
@table("kind", ["video_url", "input_video"])
def test_a_video_has_a_url(endpoint: Endpoint, kind: str) -> None:
    part = only(endpoint, {"type": kind, "video_url": {"url": "http://a.example/b.mp4"}})

    assert part.kind is media.MediaKind.VIDEO
    assert part.source == media.UrlSource("http://a.example/b.mp4")
    assert part.param == f"{FIELDS[endpoint]}[0].content[1].video_url"


@table("endpoint", FIELDS)
def test_a_file_of_chats_is_in_an_object_and_one_of_responses_is_not(endpoint: Endpoint) -> None:
    contents = {"file_data": INLINE, "filename": "a.pdf"}
    nested = only(endpoint, {"type": "file", "file": contents})
    flat = only(endpoint, {"type": "input_file", **contents})

    assert nested.kind is flat.kind is media.MediaKind.DOCUMENT
    assert nested.source == flat.source == media.InlineSource(DATA)
    assert nested.filename == flat.filename == "a.pdf"
    assert nested.param == f"{FIELDS[endpoint]}[0].content[1].file.file_data"
    assert flat.param == f"{FIELDS[endpoint]}[0].content[1].file_data"


BARE = base64.b64encode(DATA).decode()
LOUD = "://User@EXAMPLE.com:1/%41?b#c"
FILE_URL = {"type": "input_file", "file_url": URL}


@table(
    "endpoint, part, source, member",
    [
        # The contents of a file may be base64 without the start of a data URL.
        (
            CHAT,
            {"type": "file", "file": {"file_data": BARE}},
            media.InlineSource(DATA),
            "file.file_data",
        ),
        (RESPONSES, FILE_URL, media.UrlSource(URL), "file_url"),
        # A URL stays as it was sent.
        *(
            (CHAT, picture(url), media.UrlSource(url), None)
            for url in (f"{each}{LOUD}" for each in ("http", "HTTPS", "https"))
        ),
    ],
)
def test_a_source_is_read(endpoint: Endpoint, part: Any, source: Any, member: str | None) -> None:
    found = only(endpoint, part)

    assert found.source == source
    assert found.param == f"{FIELDS[endpoint]}[0].content[1].{member or 'image_url'}"


def test_v3_takes_paths_and_v1_does_not() -> None:
    part = {"type": "image_url", "image_url": {"url": "/pictures/a b.png"}}

    assert only(CHAT, part, V3).source == media.PathSource("/pictures/a b.png")
    error = refusal(CHAT, part)
    assert error.param == "messages[0].content[1].image_url"
    assert "Only /v3 takes paths" in error.message


@table("dialect", [V1, V3])
@table("start", ["file://", "FILE://localhost"])
def test_both_trees_take_the_url_of_a_local_file(dialect: Dialect, start: str) -> None:
    part = only(CHAT, picture(f"{start}/a%20b.png"), dialect)

    assert part.source == media.PathSource(f"{start}/a%20b.png", is_bare=False)


def test_the_result_of_a_tool_and_the_output_of_a_call_may_be_pictures() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": [PICTURE]}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    read = request(CHAT, messages=[{"role": "assistant", "tool_calls": [call]}, result])
    assert isinstance(read.prompt, Conversation)

    assert read.prompt.messages[1].role is Role.TOOL
    assert [part.param for part in read.media] == ["messages[1].content[0].image_url"]

    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [PICTURE]}
    read = request(RESPONSES, input=[{"role": "user", "content": "Look"}, call, output])

    assert [part.param for part in read.media] == ["input[2].output[0].image_url"]


def test_each_of_the_media_gets_its_hash_of_the_request() -> None:
    fields = {"messages": [{"role": "user", "content": [PICTURE, PICTURE]}]}
    read = request(CHAT, **fields, mm_hashes=["0" * 64, "A" * 64])
    assert [part.sha256 for part in read.media] == ["0" * 64, "a" * 64]
    assert [part.sha256 for part in request(CHAT, **fields, mm_hashes=[]).media] == [None, None]
    with pytest.raises(InvalidRequest, match="one entry for each picture, video and file: 2"):
        request(CHAT, **fields, mm_hashes=["0" * 64])


def test_tokenizing_reads_pictures() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [picture("/a.png")]}]}).encode()
    prompt = parse_tokenize(body, V3).request.prompt
    assert isinstance(prompt, Conversation)

    assert prompt.media[0].source == media.PathSource("/a.png")
    with pytest.raises(InvalidRequest, match="Only /v3 takes paths"):
        parse_tokenize(body, V1)


def test_a_request_has_a_largest_number_of_media() -> None:
    most = field_limits.MEDIA.value
    for endpoint, field in FIELDS.items():
        assert len(sent(endpoint, *[PICTURE] * most).media) == most
        with pytest.raises(InvalidRequest, match="VINERY_MAX_MEDIA") as caught:
            sent(endpoint, *[PICTURE] * (most + 1))
        assert caught.value.param == field


def test_a_data_url_is_limited_by_what_it_decodes_to() -> None:
    most = field_limits.MEDIA_BYTES.value
    for size, is_right in ((most, True), (most + 1, False)):
        url = "data:;base64," + base64.b64encode(bytes(size)).decode()
        part = {"type": "image_url", "image_url": {"url": url}}
        if is_right:
            assert only(CHAT, part).source == media.InlineSource(bytes(size))
        else:
            error = refusal(CHAT, part)
            assert f"must have at most {most} bytes, but has {most + 1}" in error.message
            assert "VINERY_MAX_MEDIA_BYTES" in error.message


# -- Files of captures


def media_fields(kind: object, path: tuple[str, ...] = (), above: tuple[object, ...] = ()) -> Any:
    """The paths of all members that take a file itself, in a body or a part of a body."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items() if kind not in above else ():
            names = (*path, field.alias or name)
            for annotation in (field.annotation, *field.metadata):
                yield from media_fields(annotation, names, (*above, kind))
    elif isinstance(kind, PlainValidator):
        with suppress(Exception):  # the validators of other fields
            if isinstance(kind.func(INLINE), media.InlineSource):
                yield path
        with suppress(Exception):
            if isinstance(kind.func(INLINE.partition(",")[2]), media.InlineSource):
                yield path
    else:
        for each in (*get_args(kind), *getattr(kind, "__metadata__", ())):
            yield from media_fields(each, path, above)


def test_captures_keep_no_file_of_any_field_of_any_protocol() -> None:
    data = base64.b64encode(DATA * 100).decode()
    paths = {
        (endpoint, path)
        for endpoint, body in [*BODIES.items(), ("tokenize", TokenizeBody)]
        for path in media_fields(body)
    }
    for _, path in paths:
        for sent_data in (data, f"data:image/png;base64,{data}"):
            body: object = sent_data
            for name in reversed(path):
                body = {name: body}
            kept, _ = without_files(json.dumps(body).encode(), 10_000)
            assert len(kept) < 200, path

    assert {path[-1] for _, path in paths} >= {"url", "image_url", "file_data", "file_url", "data"}
    assert {endpoint for endpoint, _ in paths} == {CHAT, RESPONSES, Endpoint.MESSAGES, "tokenize"}
