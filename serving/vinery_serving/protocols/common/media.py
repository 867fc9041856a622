"""The parts of a message that hold a picture, a video or a file, named as in chats and Responses.

A data URL has the file itself. Other URLs and paths stay as the client sent them: the media rules
are checked before a fetch. Vinery stores no files, so `file_id` names none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, PlainValidator, Tag, model_validator

from vinery_serving.core import field_limits
from vinery_serving.core.data_urls import (
    InvalidDataUrl,
    TooManyBytes,
    decode_base64,
    decode_data_url,
    is_data_url,
)
from vinery_serving.core.dialects import V3, Dialect
from vinery_serving.core.media import (
    Detail,
    InlineSource,
    MediaKind,
    MediaPart,
    MediaSource,
    PathSource,
    UrlSource,
)
from vinery_serving.core.request import Conversation, RawPrompts
from vinery_serving.protocols.common.parameters import Limited
from vinery_serving.protocols.common.reading import Wire, invalid, missing, refusal


def _hash(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[0-9A-Fa-f]{64}", value):
        return value.lower()
    raise invalid("must be a SHA-256 as 64 hex digits")


_Hash = Annotated[str, PlainValidator(_hash, json_schema_input_type=str)]
MediaHashes = Annotated[list[_Hash], Field(fail_fast=True), Limited(field_limits.MEDIA)]
_DETAILS: Final[Mapping[str | None, Detail]] = {
    "low": Detail.LOW,
    "high": Detail.HIGH,
    "original": Detail.HIGH,
}


def _read_source(value: object) -> MediaSource:
    """The source that a URL or path names. Only data URLs are read."""
    if not isinstance(value, str):
        raise invalid("must be a string")
    if is_data_url(value):
        return InlineSource(_decoded(value, decode_data_url))
    Limited(field_limits.URL).check(value)
    scheme = value.partition("://")[0].lower()
    if not value.strip():
        raise invalid("must not be empty: send a data URL or a URL")
    if scheme in ("http", "https"):
        return UrlSource(value)
    if scheme == "file":
        if value[len("file://") :].partition("/")[0].lower() not in ("", "localhost"):
            raise invalid("must be the URL of a file of this server: file:///folder/name")
        # `vinery_serving.media` reads URLs and paths by one set of rules.
        return PathSource(value, is_bare=False)
    return PathSource(value)


def _decoded(text: str, decode: Callable[[str, int], bytes]) -> bytes:
    limit = field_limits.MEDIA_BYTES
    try:
        return decode(text, limit.value)
    except TooManyBytes as error:
        raise invalid(limit.sentence(error.num_bytes)) from None
    except InvalidDataUrl as error:
        raise invalid(str(error)) from None


def _read_file_data(value: object) -> MediaSource:
    """`file_data`: a data URL, or base64 alone as some clients send it."""
    if not isinstance(value, str):
        raise invalid("must be a string")
    return InlineSource(_decoded(value, decode_data_url if is_data_url(value) else decode_base64))


Source = Annotated[
    Any, PlainValidator(_read_source, json_schema_input_type=Annotated[str, Field(min_length=1)])
]
FileData = Annotated[Any, PlainValidator(_read_file_data, json_schema_input_type=str)]
_Detail = Literal["auto", "low", "high", "original"]
Filename = Annotated[str, Limited(field_limits.FILENAME)]


class WireUrl(Wire):
    """A URL in an object."""

    url: Source
    detail: _Detail | None = None


def _url_tag(value: Any) -> str:
    return "<object>" if isinstance(value, dict) else "<url>"


# A `WireUrl` or a `MediaSource`.
_UrlOrObject = Annotated[
    Annotated[Source, Tag("<url>")] | Annotated[WireUrl, Tag("<object>")], Discriminator(_url_tag)
]


def _url_object(value: Any) -> WireUrl:
    return value if isinstance(value, WireUrl) else WireUrl.model_construct(url=value)


class WireMedia(Wire):
    """A part that is not text."""

    type: str

    def to_core(self, path: str) -> MediaPart:
        """`path` is the path of the part in the message."""
        raise NotImplementedError


class WireImage(WireMedia):
    """A picture: `image_url` as in chats, or `input_image` as in Responses."""

    model_config = ConfigDict(json_schema_extra={"required": ["type", "image_url"]})

    type: Literal["image_url", "input_image"]
    image_url: _UrlOrObject | None = None
    detail: _Detail | None = None

    @model_validator(mode="after")
    def _has_a_picture(self) -> Self:
        if self.image_url is None:
            raise missing("must have an `image_url`")
        return self

    def to_core(self, path: str) -> MediaPart:
        sent = _url_object(self.image_url)
        detail = _DETAILS.get(sent.detail or self.detail, Detail.AUTO)
        return MediaPart(MediaKind.IMAGE, sent.url, f"{path}.image_url", detail)


class WireVideo(WireMedia):
    """A video: `video_url` as in vLLM and FastDeploy, or `input_video`."""

    model_config = ConfigDict(json_schema_extra={"required": ["type", "video_url"]})

    type: Literal["video_url", "input_video"]
    video_url: _UrlOrObject | None = None

    @model_validator(mode="after")
    def _has_a_video(self) -> Self:
        if self.video_url is None:
            raise missing("must have a `video_url`")
        return self

    def to_core(self, path: str) -> MediaPart:
        return MediaPart(MediaKind.VIDEO, _url_object(self.video_url).url, f"{path}.video_url")


class WireFileContents(Wire):
    """A file: the contents as `file_data`, or a `file_url`."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["file_data"]}, {"required": ["file_url"]}]}
    )

    file_data: FileData | None = None
    file_url: Source | None = None
    filename: Filename | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.file_data is None and self.file_url is None:
            raise missing("must have `file_data`")
        if self.file_data is not None and self.file_url is not None:
            raise invalid("has `file_data` and `file_url`: send one of them")
        return self

    def contents(self, path: str) -> MediaPart:
        is_inline = self.file_data is not None
        source: Any = self.file_data if is_inline else self.file_url
        param = f"{path}.{'file_data' if is_inline else 'file_url'}"
        return MediaPart(MediaKind.DOCUMENT, source, param, filename=self.filename)


class WireFile(WireMedia):
    """A file as in chats."""

    type: Literal["file"]
    file: WireFileContents

    def to_core(self, path: str) -> MediaPart:
        return self.file.contents(f"{path}.file")


class WireInputFile(WireFileContents, WireMedia):
    """A file as in Responses."""

    type: Literal["input_file"]

    def to_core(self, path: str) -> MediaPart:
        return self.contents(path)


def check_media(conversation: Conversation, dialect: Dialect, field: str) -> None:
    """Raises `InvalidRequest` for too many media, and for paths under /v1."""
    media, limit = conversation.media, field_limits.MEDIA
    if len(media) > limit.value:
        raise refusal(
            field,
            f"must have at most {limit.value} pictures, videos and files, but has {len(media)}. "
            f"Send fewer, or ask the administrator to raise {limit.setting}",
        )
    for part in media:
        if isinstance(part.source, PathSource) and part.source.is_bare and dialect is not V3:
            raise refusal(
                part.param,
                "must be an http or https URL, a file:// URL or a data URL. Only /v3 takes paths",
            )


def with_hashes(
    prompt: Conversation | RawPrompts, hashes: Sequence[str]
) -> Conversation | RawPrompts:
    """Return the prompt with these hashes on its media, in order. Raises `InvalidRequest` for
    another number of hashes."""
    media = prompt.media if isinstance(prompt, Conversation) else ()
    if not hashes:
        return prompt
    if len(hashes) != len(media):
        raise refusal(
            "mm_hashes", f"must have one entry for each picture, video and file: {len(media)}"
        )
    assert isinstance(prompt, Conversation)
    given = iter(hashes)
    return prompt.with_media(lambda part: (replace(part, sha256=next(given)),))
