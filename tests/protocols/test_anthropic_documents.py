"""Every field and type of Anthropic's package is honoured, refused by name, or reported as without
effect. The tables here list all fields and types."""

import typing
from collections.abc import Iterator
from typing import Any, Final

import anthropic.types as stable
import anthropic.types.beta as beta
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count_params
from anthropic.types.beta import message_create_params as beta_create_params
from typing_extensions import get_type_hints

from tests.tables import table
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.request import Unused

from .exchanges import message

CACHED: Final = {"type": "ephemeral"}
CITED: Final = {"enabled": True}
TOOL: Final = {"name": "f", "input_schema": {"type": "object"}}
TEXT: Final = {"type": "text", "text": "a"}
TURN: Final = {"role": "user", "content": "a"}
PICTURE: Final = {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}
THINKING: Final = {"type": "thinking", "thinking": "a"}
USE: Final = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
RESULT: Final = {"type": "tool_result", "tool_use_id": "t"}
FOUND: Final = {"type": "search_result", "title": "a", "source": "b", "content": [TEXT]}
DOCUMENT: Final = {"type": "document", "source": {"type": "text", "data": "a"}}


def block(value: Any, role: str = "user") -> dict[str, Any]:
    """The fields of a body with a turn of one block."""
    return {"messages": [{"role": role, "content": [value]}]}


def tool(**members: Any) -> dict[str, Any]:
    return {"tools": [{**TOOL, **members}]}


# The fields that take effect, or ask for what this server does, by path: test_messages.py and
# test_reading_fields.py have the effects. The next tables have fields that are reported, and fields
# that are refused by name.
HONOURED: Final = """
max_tokens messages model output_config output_config.effort output_config.format stop_sequences
stream system thinking thinking.type thinking.budget_tokens thinking.display tool_choice
tool_choice.type tool_choice.name tool_choice.disable_parallel_tool_use tools tools.name
tools.description tools.input_schema tools.input_examples tools.strict tools.type messages.role
messages.content text.type text.text image.type image.source document.type document.source
document.title document.context search_result.type search_result.title search_result.source
search_result.content tool_result.type tool_result.tool_use_id tool_result.content
tool_result.is_error tool_use.type tool_use.id tool_use.name tool_use.input
thinking_block.thinking thinking_block.type
context_management metadata metadata.user_id service_tier messages.clear_at
"""
# With the name in `x-vinery-ignored`.
NAMED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    **{
        name: ({name: "a"}, name)
        for name in (
            "betas", "billing_policy", "cache_control", "diagnostics", "fallback_credit_token",
            "inference_geo", "speed", "user_profile_id", "workspace_id",
        )
    },
    "thinking.block_binding": (
        {"thinking": {"type": "adaptive", "block_binding": {}}}, "thinking.block_binding",
    ),
    **{
        f"tools.{name}": (tool(**{name: value}), f"tools.{name}")
        for name, value in (
            ("cache_control", CACHED), ("defer_loading", True), ("eager_input_streaming", True),
        )
    },
    **{
        f"{value['type']}.{name}": (block({**value, name: sent}, role), f"messages.content.{name}")
        for value, role, name, sent in (
            *((each, "user", "cache_control", CACHED)
              for each in (TEXT, PICTURE, DOCUMENT, FOUND, RESULT)),
            (USE, "assistant", "cache_control", CACHED), (TEXT, "user", "citations", []),
            (USE, "assistant", "caller", {"type": "direct"}),
            (USE, "assistant", "toolset_name", "a"), (RESULT, "user", "toolset_name", "a"),
        )
    },
    # A part of the protocol, which every server reads for itself.
    "thinking_block.signature": (block({**THINKING, "signature": "s"}, "assistant"), ""),
    **{
        f"redacted_thinking.{name}": (
            block({"type": "redacted_thinking", "data": "a"}, "assistant"), "",
        )
        for name in ("data", "type")
    },
}  # fmt: skip
IN_THE_BLOCK: Final = "messages[0].content[0]"
REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    **{
        name: ({name: value}, name)
        for name, value in (
            ("compaction", {"type": "a"}), ("container", "a"), ("fallbacks", [{"model": "a"}]),
            ("mcp_servers", [{"name": "a"}]), ("thread", {"type": "create"}),
        )
    },
    "output_config.task_budget": (
        {"output_config": {"task_budget": {"total": 1}}}, "output_config.task_budget",
    ),
    "tools.allowed_callers": (
        tool(allowed_callers=["code_execution_20260120"]), "tools[0].allowed_callers",
    ),
    "image.transformations": (
        block({**PICTURE, "transformations": {"oversized_image": "error"}}),
        f"{IN_THE_BLOCK}.transformations.oversized_image",
    ),
    "document.citations": (
        block({**DOCUMENT, "citations": CITED}), f"{IN_THE_BLOCK}.citations.enabled",
    ),
    "search_result.citations": (
        block({**FOUND, "citations": CITED}), f"{IN_THE_BLOCK}.citations.enabled",
    ),
    "messages.output_config": (
        {"messages": [{**TURN, "output_config": {"effort": "low"}}]}, "messages[0].output_config",
    ),
}  # fmt: skip
# The types of blocks, sources, tools and modes.
BLOCK_TYPES: Final = {
    "text": TEXT, "image": PICTURE, "document": DOCUMENT, "search_result": FOUND,
    "tool_result": RESULT, "tool_use": USE, "thinking": THINKING,
    "redacted_thinking": {"type": "redacted_thinking"},
}  # fmt: skip
SOURCES: Final = {
    "base64": {"type": "base64", "media_type": "application/pdf", "data": "YQ=="},
    "text": {"type": "text", "media_type": "text/plain", "data": "a"},
    "content": {"type": "content", "content": [TEXT, PICTURE]},
    "url": {"type": "url", "url": "https://a.b/c.pdf"},
}
REFUSED_SOURCES: Final = {"file"}
REFUSED_BLOCKS: Final = """
server_tool_use web_search_tool_result web_fetch_tool_result code_execution_tool_result
bash_code_execution_tool_result text_editor_code_execution_tool_result tool_search_tool_result
advisor_tool_result mcp_tool_use mcp_tool_result mcp_tool_listing container_upload tool_reference
browser_state compaction fallback tool_addition tool_removal
"""
REFUSED_THINKING: Final = {"between_tools"}


def typed_dicts(kind: Any) -> Iterator[Any]:
    """The typed dictionaries of a type, without nested dictionaries."""
    if isinstance(kind, type) and hasattr(kind, "__required_keys__"):
        yield kind
    else:
        for inner in typing.get_args(kind):
            yield from typed_dicts(inner)


def fields_of(kind: Any, prefix: str) -> set[str]:
    return {f"{prefix}{name}" for each in typed_dicts(kind) for name in get_type_hints(each)}


def types_in(kind: Any) -> set[str]:
    """The values of `type` of the dictionaries of a type."""
    return {
        name
        for each in typed_dicts(kind)
        for name in typing.get_args(get_type_hints(each)["type"])
        if isinstance(name, str)
    }


def member(kind: Any, name: str) -> Any:
    """The types of a member of all dictionaries of a type."""
    found = [get_type_hints(each)[name] for each in typed_dicts(kind)]
    return typing.Union[tuple(found)]  # noqa: UP007


BODIES: Final = (
    message_create_params.MessageCreateParamsNonStreaming,
    message_create_params.MessageCreateParamsStreaming,
    message_count_tokens_params.MessageCountTokensParams,
    beta_create_params.MessageCreateParamsNonStreaming,
    beta_create_params.MessageCreateParamsStreaming,
    beta_count_params.MessageCountTokensParams,
)
BLOCKS: Final = typing.Union[stable.ContentBlockParam, beta.BetaContentBlockParam]  # noqa: UP007
RESULTS: Final = (stable.ToolResultBlockParam, beta.BetaToolResultBlockParam)
DOCUMENTS: Final = (stable.DocumentBlockParam, beta.BetaRequestDocumentBlockParam)
IMAGES: Final = (stable.ImageBlockParam, beta.BetaImageBlockParam)
OBJECTS: Final = {
    "thinking.": (stable.ThinkingConfigParam, beta.BetaThinkingConfigParam),
    "output_config.": (stable.OutputConfigParam, beta.BetaOutputConfigParam),
    "tool_choice.": (stable.ToolChoiceParam, beta.BetaToolChoiceParam),
    "metadata.": (stable.MetadataParam, beta.BetaMetadataParam),
    "tools.": (stable.ToolParam, beta.BetaToolParam),
    "messages.": (stable.MessageParam, beta.BetaMessageParam),
}


def documented() -> set[str]:
    """The paths of all fields of the package. A block's path begins with the type."""
    paths = {name for body in BODIES for name in get_type_hints(body)}
    for prefix, kinds in OBJECTS.items():
        for kind in kinds:
            paths |= fields_of(kind, prefix)
    for each in typed_dicts(BLOCKS):
        (kind,) = types_in(each)
        if kind not in REFUSED_BLOCKS.split():
            prefix = "thinking_block." if kind == "thinking" else f"{kind}."
            paths |= fields_of(each, prefix)
    return paths


def test_the_tables_have_each_field_that_the_package_documents_once_and_no_other() -> None:
    known = [*HONOURED.split(), *NAMED, *REFUSED]

    assert len(known) == len(set(known))
    assert set(known) == documented()


@table("path", NAMED)
def test_a_field_without_effect_is_named(path: str) -> None:
    fields, name = NAMED[path]
    unused = message(**fields).unused

    assert (*unused.harmless, *unused.unknown) == ((name,) if name else ())


@table("path", REFUSED)
def test_a_field_is_refused_by_its_name(path: str) -> None:
    fields, param = REFUSED[path]

    with pytest.raises(InvalidRequest) as caught:
        message(**fields)

    assert caught.value.param == param
    assert f"`{param}`" in caught.value.message


def test_every_type_of_a_block_is_read_or_refused_by_name() -> None:
    inner = {kind for each in RESULTS for kind in types_in(member(each, "content"))}

    assert types_in(BLOCKS) | inner <= {*BLOCK_TYPES, *REFUSED_BLOCKS.split()}


@table("kind", REFUSED_BLOCKS.split())
def test_another_type_of_a_block_is_refused_with_the_types_that_are_read(kind: str) -> None:
    for fields in (block({"type": kind}), block({**RESULT, "content": [{"type": kind}]})):
        with pytest.raises(InvalidRequest, match="must have one of these types: text, image"):
            message(**fields)


@table("kinds", [DOCUMENTS, IMAGES])
def test_every_source_is_read_or_refused_by_name(kinds: tuple[Any, ...]) -> None:
    found = {kind for each in kinds for kind in types_in(member(each, "source"))}
    assert found <= set(SOURCES) | REFUSED_SOURCES

    (name,) = types_in(kinds[0])
    for kind in found - REFUSED_SOURCES:
        assert message(**block({"type": name, "source": SOURCES[kind]})).unused == Unused()
    for kind in found & REFUSED_SOURCES:
        with pytest.raises(InvalidRequest, match="must have one of these types"):
            message(**block({"type": name, "source": {"type": kind, "file_id": "a"}}))


def test_every_type_of_thinking_is_read_or_refused_by_name() -> None:
    kinds = {kind for each in OBJECTS["thinking."] for kind in types_in(each)}

    for kind in kinds - REFUSED_THINKING:
        assert message(thinking={"type": kind}).unused == Unused()
    for kind in REFUSED_THINKING:
        with pytest.raises(InvalidRequest, match=r"`thinking\.type` must be "):
            message(thinking={"type": kind})


def test_every_tool_that_is_anthropics_own_is_refused_by_name() -> None:
    union = typing.Union[stable.ToolUnionParam, beta.BetaToolUnionParam]  # noqa: UP007
    kinds = types_in(union) - {"custom"}
    assert len(kinds) > 20

    for kind in kinds:
        with pytest.raises(InvalidRequest, match=r"`tools\[0\]\.type` must be 'custom'"):
            message(tools=[{"type": kind, "name": "a"}])
