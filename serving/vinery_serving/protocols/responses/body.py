"""The body of a Responses request, and the members of the answer that repeat it."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BeforeValidator, Field

from vinery_serving.core import field_limits, request
from vinery_serving.core.dialects import V1, Dialect
from vinery_serving.core.errors import UnsupportedParameter
from vinery_serving.core.memory import Needs
from vinery_serving.protocols.common import reading
from vinery_serving.protocols.common import tools as wire_tools
from vinery_serving.protocols.common.formats import RESPONSE_FORMAT, ResponseFormat, TextFormat
from vinery_serving.protocols.common.generation import GenerationBody, Metadata, TemplateFields
from vinery_serving.protocols.responses import objects
from vinery_serving.protocols.responses.input import (
    CompactionItem,
    CompactionTrigger,
    Input,
    ItemReference,
    messages_of,
    without_old_reasoning,
)

Summary = Literal["auto", "concise", "detailed"]

# The values about hosted tools and images have no effect: this server has neither.
Includable = Literal[
    "reasoning.encrypted_content", "message.output_text.logprobs", "message.input_image.image_url",
    "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
    "computer_call_output.output.image_url", "code_interpreter_call.outputs",
]  # fmt: skip
INCLUDABLE: Final = frozenset(get_args(Includable))
Include = Annotated[list[Includable], Field(fail_fast=True), reading.Limited(field_limits.INCLUDE)]


def _conversation_id(value: object) -> object:
    return value["id"] if isinstance(value, dict) and "id" in value else value


ConversationId = Annotated[
    reading.Identifier,
    BeforeValidator(
        _conversation_id,
        json_schema_input_type=str | Annotated[dict[str, Any], Field(description="With its `id`.")],
    ),
]


class ContextManagement(reading.Wire):
    type: Literal["compaction"]
    compact_threshold: Annotated[int, Field(ge=1000)] | None = None


class ReasoningOptions(reading.Wire):
    """`reasoning`."""

    effort: request.Effort | None = reading.parameter(reading.EFFORT)
    summary: Summary | None = reading.parameter(
        "The answer has the whole reasoning, whichever summary is asked for."
    )
    generate_summary: Summary | None = reading.parameter("The deprecated name of `summary`.")
    context: Literal["auto", "current_turn", "all_turns"] | None = reading.parameter(
        "Which earlier reasoning the template gets. The template selects what to show."
    )
    mode: Literal["standard"] | None = reading.parameter(
        "Only `standard`; `pro` is refused, because the served models have one reasoning mode."
    )


class TextOptions(reading.Wire):
    """`text`."""

    format: TextFormat | None = reading.parameter(
        "The format of the answer: the `response_format` of chats without the inner object."
    )
    verbosity: Literal["low", "medium", "high"] | None = reading.parameter(
        "Repeated. The served models have no such setting.", changes_nothing=True
    )


class ResponsesBody(TemplateFields, GenerationBody):
    """The parameters of Responses."""

    input: Input | None = reading.parameter(
        "A text, or items: messages, reasoning, tool calls and their outputs."
    )
    instructions: reading.Text | None = reading.parameter("A system message before all others.")
    previous_response_id: reading.Identifier | None = reading.parameter(
        "A stored response, whose conversation comes before `input`. Its `instructions` do not."
    )
    conversation: ConversationId | None = reading.parameter(
        "A stored conversation, as its id or an object with its `id`. Its items come before "
        "`input`, and the items of this request and of its answer are added to it."
    )
    background: bool | None = reading.parameter(
        "True answers at once with a queued response, which is read, streamed and cancelled by its "
        "id."
    )
    tools: wire_tools.WireTools | None = reading.parameter(wire_tools.TOOLS)
    tool_choice: wire_tools.WireToolChoice = reading.parameter(wire_tools.TOOL_CHOICE)
    parallel_tool_calls: bool | None = reading.parameter(wire_tools.PARALLEL_CALLS)
    reasoning: ReasoningOptions | None = reading.parameter(
        "How to reason, and how to return the reasoning."
    )
    text: TextOptions | None = reading.parameter("The format of the answer.")
    response_format: ResponseFormat | None = reading.parameter(RESPONSE_FORMAT)
    include: Include | None = reading.parameter(
        "`message.output_text.logprobs` and `reasoning.encrypted_content` add members to the "
        "answer. The values about hosted tools have no effect."
    )
    max_tool_calls: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = reading.parameter(
        "Repeated. A limit for hosted tools, which this server does not have.", changes_nothing=True
    )
    logprobs: bool | None = reading.parameter(
        "Returns the log-probability of each token of the answer, as OVMS and `include` do."
    )
    top_logprobs: reading.TopLogprobs | None = reading.parameter(
        "The number of alternatives for each token, from 0 to 20."
    )
    truncation: Literal["auto", "disabled"] | None = reading.parameter(
        "`auto` leaves out the oldest messages until the prompt fits into the context; "
        "`disabled` refuses a longer prompt."
    )
    context_management: (
        Annotated[list[ContextManagement], Field(fail_fast=True, max_length=1)] | None
    ) = reading.parameter(
        "At most one entry of the type `compaction`. A prompt of more than `compact_threshold` "
        "tokens (at least 1000), or one that does not fit into the context with its answer, is "
        "summarized before the answer, by the same model."
    )
    metadata: Metadata | None = reading.parameter(
        "The answer repeats it; at most 16 pairs.", changes_nothing=True
    )

    @property
    def num_top_logprobs(self) -> int | None:
        """`top_logprobs` also asks for the log-probability of the token itself."""
        is_included = "message.output_text.logprobs" in (self.include or ())
        return self.top_logprobs or 0 if self.logprobs or self.top_logprobs or is_included else None

    def hosted_features(self) -> tuple[str, ...]:
        """Return also the tools that OpenAI hosts, which the model does not get."""
        kinds = (f"tools.{kind}" for kind in wire_tools.hosted_kinds(self.tools or ()))
        return (*super().hosted_features(), *dict.fromkeys(kinds))

    def refuse_contradictions(self) -> None:
        super().refuse_contradictions()
        if self.stream and (self.n or 1) > 1:
            raise reading.refusal("n", "must be 1 if `stream` is true")

    def refuse_background(self, *, is_kept: bool) -> None:
        """Raises `InvalidRequest` for a response of the background that cannot be stored."""
        if self.background and not is_kept:
            raise reading.refusal(
                "background",
                "needs a response that is stored: leave out `store: false` and `request_id`, and "
                "use a key of a project that stores responses",
            )
        if self.background and (self.n or 1) > 1:
            raise reading.refusal("n", "must be 1 beside `background`")

    def needs(self) -> Needs | None:
        """Return what must be recalled. Raises `InvalidRequest` for two kinds of history."""
        if self.previous_response_id is not None and self.conversation is not None:
            raise reading.refusal(
                "previous_response_id", "and `conversation` exclude each other. Send one of them"
            )
        items = self.input or ()
        ids = dict.fromkeys(each.id for each in items if isinstance(each, ItemReference))
        made = ((at, each) for at, each in enumerate(items) if isinstance(each, CompactionItem))
        sealed = {f"input[{at}]": each.encrypted_content for at, each in made}
        needs = Needs(self.previous_response_id, self.conversation, tuple(ids), sealed)
        return None if needs == Needs() else needs

    @property
    def compact_threshold(self) -> int | None:
        """A prompt of more tokens is compacted, or else one that does not fit. None: none is."""
        for entry in self.context_management or ():
            return entry.compact_threshold or sys.maxsize
        return None

    def without_trigger(self) -> tuple[Self, bool]:
        """Return the body without the item that asks for a compaction, and whether it has one.
        Raises `InvalidRequest` for such an item before others, or alone."""
        *others, last = self.input or (None,)
        for at, each in enumerate(others):
            if isinstance(each, CompactionTrigger):
                raise reading.refusal(
                    f"input[{at}]", "must be the last item: it compacts all before it"
                )
        if not isinstance(last, CompactionTrigger):
            return self, False
        if not others and self.previous_response_id is None and self.conversation is None:
            raise reading.refusal("input[0]", "has nothing before it that could be compacted")
        return self.model_copy(update={"input": others}), True

    def keeps(self, dialect: Dialect) -> bool:
        """Return whether the client wants the response to be stored: OpenAI's default is true."""
        return self.store is not False if dialect == V1 else self.store is True

    def prompt(self, num_recalled: int = 0) -> request.Conversation:
        """Return the prompt. Raises `InvalidRequest` for a tool choice that `tools` contradicts."""
        tools = wire_tools.clients_tools(self.tools or ())
        return request.Conversation(
            messages=self._messages(num_recalled),
            tools=tools,
            tool_choice=wire_tools.resolve_choice(self.tool_choice, tools),
            parallel_tool_calls=self.parallel_tool_calls is not False,
            template_kwargs=self.chat_template_kwargs or {},
            rendering=self.rendering(None if self.reasoning is None else self.reasoning.effort),
            drops_oldest=self.truncation == "auto",
        )

    def grammar(self, dialect: Dialect) -> request.Grammar | None:
        """Return the constraint on the answer. Raises `UnsupportedParameter` for a
        `response_format` on /v1, which only OVMS has in Responses."""
        chat_format = self.response_format
        if chat_format is not None and chat_format.type != "text" and dialect == V1:
            raise UnsupportedParameter(
                "`response_format` belongs to chat completions. Use `text.format` instead.",
                param="response_format",
            )
        return self.constraint(None if self.text is None else self.text.format, chat_format)

    def _messages(self, num_recalled: int) -> tuple[request.Message, ...]:
        messages = messages_of(self.input or (), num_recalled)
        if self.reasoning is not None and self.reasoning.context == "current_turn":
            messages = without_old_reasoning(messages)
        if not self.instructions:
            return messages
        return (
            request.Message(request.Role.SYSTEM, (request.TextPart(self.instructions),)),
            *messages,
        )


# The members that an answer repeats as they were sent, null or not.
_REPEATED: Final = (
    "instructions", "max_tool_calls", "previous_response_id", "temperature", "top_p",
    "presence_penalty", "frequency_penalty", "user", "safety_identifier", "prompt_cache_key",
)  # fmt: skip


def echo(wire: ResponsesBody, tools: Sequence[request.Tool], *, is_kept: bool) -> objects.Members:
    """Return the members of the answer that repeat the request, as plain JSON values, with
    OpenAI's defaults except for the sampling. `tools` are the tools that the client runs."""
    text, (_, limit) = wire.text or TextOptions(), wire.output_limit
    reasoning, retention = wire.reasoning or ReasoningOptions(), wire.prompt_cache_retention
    echoed: dict[str, Any] = {
        **{name: getattr(wire, name) for name in _REPEATED},
        "max_output_tokens": None if limit == reading.NO_LIMIT else limit,
        "tools": [
            _tool(tool) for tool in wire.tools or () if not isinstance(tool, wire_tools.HostedTool)
        ],
        "tool_choice": wire_tools.echoed_choice(wire.tool_choice or request.ToolChoice(), tools),
        "parallel_tool_calls": wire.parallel_tool_calls is not False,
        "reasoning": {
            "effort": reasoning.effort,
            "summary": reasoning.summary or reasoning.generate_summary,
            **({"context": reasoning.context} if reasoning.context else {}),
            **({"mode": reasoning.mode} if reasoning.mode else {}),
        },
        "text": {
            "format": _format(text.format or wire.response_format),
            "verbosity": text.verbosity or "medium",
        },
        "top_logprobs": wire.top_logprobs or 0,
        "truncation": wire.truncation or "disabled",
        "service_tier": "flex" if wire.background or wire.service_tier == "flex" else "default",
        "store": is_kept,
        "background": wire.background is True,
        "metadata": wire.metadata or {},
        "prompt_cache_retention": "in_memory" if retention == "in-memory" else retention,
    }
    if wire.prompt_cache_options is not None:
        # Strict clients need both members or none of the object.
        mode, ttl = wire.prompt_cache_options.mode, wire.prompt_cache_options.ttl
        echoed["prompt_cache_options"] = {"mode": mode or "implicit", "ttl": ttl or "30m"}
    if wire.conversation is not None:
        echoed["conversation"] = {"id": wire.conversation}
    return echoed


def _format(sent: TextFormat | ResponseFormat | None) -> objects.Members:
    if sent is None or sent.tag is not None:
        return {"type": "text"}  # strict clients refuse tags
    schema = sent.json_schema if isinstance(sent, ResponseFormat) else sent
    if sent.type != "json_schema" or schema is None:
        return {"type": sent.type}
    return {
        "type": "json_schema",
        "name": schema.name or "response",  # Strict clients need a name, but some clients send none
        "description": schema.description,
        **({} if schema.schema_ is None else {"schema": schema.schema_}),
        "strict": schema.strict,
    }


def _tool(tool: wire_tools.NamespaceTool | wire_tools.CallableTool) -> objects.Members:
    if not isinstance(tool, wire_tools.NamespaceTool):
        return _member(tool.to_core(""))
    tools = [_member(each) for each in tool.members("")]
    head = {"type": "namespace", "name": tool.name, "description": tool.description or ""}
    return {**head, "tools": tools}


def _member(tool: request.Tool) -> objects.Members:
    head = {"name": tool.name, "description": tool.description}
    if not tool.is_custom:
        return {"type": "function", **head, "parameters": tool.parameters, "strict": tool.strict}
    grammar, written = tool.input_grammar, {"type": "text"}
    if grammar is not None:
        source = {"syntax": grammar.syntax.value, "definition": grammar.definition}
        written = {"type": "grammar", **source}
    return {"type": "custom", **head, "format": written}
