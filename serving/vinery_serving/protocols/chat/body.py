"""The body of a chat completion request."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from vinery_serving.core import field_limits
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.request import Conversation, Message
from vinery_serving.protocols.common.formats import RESPONSE_FORMAT, ResponseFormat
from vinery_serving.protocols.common.generation import GenerationBody
from vinery_serving.protocols.common.limited import Limited
from vinery_serving.protocols.common.messages import AssistantMessage, Content, WireMessage
from vinery_serving.protocols.common.metadata import ArrivalFields
from vinery_serving.protocols.common.parameters import (
    EFFORT,
    EVERY_SYSTEM,
    Effort,
    PromptIds,
    TopLogprobs,
    parameter,
)
from vinery_serving.protocols.common.prompting import TemplateFields
from vinery_serving.protocols.common.reading import Wire, refusal
from vinery_serving.protocols.common.tools import (
    PARALLEL_CALLS,
    TOOL_CHOICE,
    TOOLS,
    WireFunctions,
    WireToolChoice,
    WireTools,
    clients_tools,
    refuse_hosted,
    resolve_choice,
)


class Prediction(Wire):
    """`prediction`: an expected answer. It never changes the answer."""

    type: Literal["content"] = parameter(
        "`content`.", of="OpenAI", is_required=True, changes_nothing=True
    )
    content: Content = parameter(
        "A text, or text parts.", of="OpenAI", is_required=True, changes_nothing=True
    )


def _kind(value: Any) -> str:
    """FastDeploy accepts token ids as messages."""
    is_ids = isinstance(value, list) and bool(value) and type(value[0]) is int
    return "<ids>" if is_ids else "<messages>"


Messages = Annotated[list[WireMessage], Field(fail_fast=True), Limited(field_limits.MESSAGES)]
MessagesOrIds = Annotated[
    Annotated[Messages, Tag("<messages>")] | Annotated[PromptIds, Tag("<ids>")],
    Discriminator(_kind),
]


class ChatBody(TemplateFields, ArrivalFields, GenerationBody):
    """The parameters of chat completions."""

    messages: MessagesOrIds | None = parameter(
        "The conversation, or as in FastDeploy a list of token ids. With `prefix` true, as in "
        "Mistral's API, the answer continues the last message.",
        of=EVERY_SYSTEM,
    )
    prompt_token_ids: PromptIds | None = parameter(
        "Token ids that replace the rendered `messages`.", of="FastDeploy"
    )
    echo: bool | None = parameter(
        "The answer begins with the last message, if the assistant wrote it.", of="vLLM"
    )
    tools: WireTools | None = parameter(TOOLS, of=EVERY_SYSTEM)
    tool_choice: WireToolChoice = parameter(TOOL_CHOICE, of="OVMS, OpenAI, vLLM")
    functions: WireFunctions | None = parameter(
        "The deprecated form of `tools`; the answer has `function_call`.", of="OpenAI"
    )
    function_call: WireToolChoice = parameter("The deprecated form of `tool_choice`.", of="OpenAI")
    parallel_tool_calls: bool | None = parameter(PARALLEL_CALLS, of="OpenAI, vLLM")
    response_format: ResponseFormat | None = parameter(RESPONSE_FORMAT, of=EVERY_SYSTEM)
    reasoning_effort: Effort | None = parameter(EFFORT, of="OpenAI, vLLM")
    prediction: Prediction | None = parameter(
        "A hint for speed. It never changes the answer.", of="OpenAI, vLLM", changes_nothing=True
    )
    verbosity: Literal["low", "medium", "high"] | None = parameter(
        "A hint. The served models have no such setting.", of="OpenAI, vLLM", changes_nothing=True
    )
    logprobs: bool | None = parameter(
        "Returns the log-probability of each token of the answer, from the model's own "
        "distribution; also in streams.",
        of=EVERY_SYSTEM,
    )
    top_logprobs: TopLogprobs | None = parameter(
        "The number of alternatives for each token, from 0 to 20.",
        of="OpenAI, vLLM, FastDeploy",
    )

    @property
    def num_top_logprobs(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None

    def refuse_contradictions(self) -> None:
        super().refuse_contradictions()
        if self.top_logprobs and not self.logprobs:
            raise refusal("top_logprobs", "needs `logprobs` to be true")

    @property
    def continues_final_message(self) -> bool:
        """Also if the last message is a `prefix`, as Mistral and DeepSeek name it."""
        last = self.messages[-1] if self.messages else None
        is_prefix = isinstance(last, AssistantMessage) and bool(last.prefix)
        return is_prefix or super().continues_final_message

    def conversation(self) -> Conversation:
        """Return the prompt. Raises `InvalidRequest` for a missing prompt, and for tools and a
        tool choice that contradict each other."""
        # The server would ignore one of two parameters with the same meaning.
        for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
            if getattr(self, old) and getattr(self, new):
                raise refusal(old, f"cannot be used with `{new}`")
        tools = self.tools or self.functions or ()
        refuse_hosted(tools)
        functions = clients_tools(tools)
        messages, token_ids = self._messages_and_ids()
        return Conversation(
            messages=messages,
            tools=functions,
            tool_choice=resolve_choice(self.tool_choice or self.function_call, functions),
            # An answer in the deprecated form has one call.
            parallel_tool_calls=self.parallel_tool_calls is not False and not self.functions,
            template_kwargs=self.chat_template_kwargs or {},
            rendering=self.rendering(self.reasoning_effort),
            token_ids=token_ids,
            echo=bool(self.echo),
        )

    def _messages_and_ids(self) -> tuple[tuple[Message, ...], tuple[int, ...] | None]:
        sent = self.messages or ()
        messages = tuple(
            each.to_core().within(f"messages[{at}]")
            for at, each in enumerate(sent)
            if not isinstance(each, int)
        )
        ids = tuple(each for each in sent if isinstance(each, int))
        given = tuple(self.prompt_token_ids or ids) or None
        if given is None and self.messages == []:
            raise refusal("messages", "must not be empty")
        if given is None and not messages:
            raise MissingParameter("`messages` is required.", param="messages")
        return messages, given
