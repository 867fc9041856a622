"""The part of a body that all generation endpoints have: prompts, delivery, data about the client.

Every endpoint reads the parameters that do not change the generated text, and refuses wrong values.
The answer repeats such a parameter where OpenAI's answer has the member.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainValidator

from vinery_serving.core import field_limits
from vinery_serving.core import request as core
from vinery_serving.core.dialects import Dialect
from vinery_serving.protocols.common import decoding
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.formats import FormatFields
from vinery_serving.protocols.common.messages import MediaHashes, check_media, with_hashes
from vinery_serving.protocols.common.reading import (
    MAX_TOKEN_ID,
    MODEL,
    AnyObject,
    Args,
    Identifier,
    Limited,
    ModelName,
    Text,
    TokenId,
    Wire,
    invalid,
    parameter,
    refusal,
    refuse_long,
    sent_parameters,
)

# -- Prompts

# The variables that the renderer sets itself.
_RESERVED_KWARGS = frozenset(
    (
        "add_generation_prompt", "bos_token", "chat_template", "cls_token",
        "continue_final_message", "conversation", "eos_token", "mask_token", "max_length",
        "messages", "pad_token", "padding", "return_assistant_tokens_mask", "return_dict",
        "return_tensors", "sep_token", "tokenize", "tokenizer_kwargs", "tools", "truncation",
        "unk_token",
    )
)  # fmt: skip


def _without_reserved_names(value: object) -> object:
    for name in value if isinstance(value, dict) else ():
        if name in _RESERVED_KWARGS:
            raise invalid(f"must not set `{name}`: the server sets it itself")
    return value


def _not_zero(value: int) -> int:
    if value == 0:
        raise invalid("must be at least 1, or -1 for as many tokens as fit into the context")
    return value


TemplateKwargs = Annotated[
    Args, BeforeValidator(_without_reserved_names, json_schema_input_type=Args)
]
Documents = Annotated[list[AnyObject], Field(fail_fast=True), Limited(field_limits.DOCUMENTS)]
Template = Annotated[str, Field(min_length=1), Limited(field_limits.TEMPLATE)]
TruncateTo = Annotated[
    int,
    Field(ge=-1, le=2**31 - 1, json_schema_extra={"not": {"const": 0}}),
    AfterValidator(_not_zero),
]

Prompt = str | tuple[int, ...]
_PROMPTS = Limited(field_limits.PROMPTS)
_PROMPT_IDS = Limited(field_limits.PROMPT_IDS)
ManyTexts = Annotated[list[str], Field(min_length=1), _PROMPTS]
Ids = Annotated[list[TokenId], Field(min_length=1), _PROMPT_IDS]
ManyIds = Annotated[list[Ids], Field(min_length=1), _PROMPTS]


def read_prompts(value: object) -> tuple[Prompt, ...]:
    """Read a text, several texts, token ids, or several lists of token ids."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise invalid("must be a string, an array of strings, or one or more arrays of token ids")
    if not value:
        raise invalid("must not be empty")
    if all(isinstance(entry, str) for entry in value):
        _PROMPTS.check(value)
        return tuple(value)
    if all(isinstance(entry, list) for entry in value):
        _PROMPTS.check(value)
        return tuple(_token_ids(entry) for entry in value)
    return (_token_ids(value),)


def _token_ids(value: list[object]) -> tuple[int, ...]:
    if not value:
        raise invalid("must not have an empty array of token ids")
    _PROMPT_IDS.check(value)
    ids = tuple(entry for entry in value if type(entry) is int and 0 <= entry <= MAX_TOKEN_ID)
    if len(ids) != len(value):
        raise invalid("must have only strings or only token ids: integers from 0")
    return ids


def read_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise invalid("must be a string or an array of strings")
    if not value:
        raise invalid("must not be empty")
    _PROMPTS.check(value)
    return tuple(value)


Prompts = Annotated[
    tuple[Prompt, ...],
    PlainValidator(read_prompts, json_schema_input_type=Text | ManyTexts | Ids | ManyIds),
]
Texts = Annotated[
    tuple[str, ...], PlainValidator(read_texts, json_schema_input_type=Text | ManyTexts)
]


class TemplateFields(Wire):
    """The fields of `Rendering`, for chats, Responses and `/tokenize`. Whether the template
    uses a variable is known only to the process that has the model."""

    chat_template: Template | None = parameter(
        "A template that replaces the model's, for models with `trust_request_chat_template`. "
        "A sandbox limits time and memory."
    )
    chat_template_kwargs: TemplateKwargs | None = parameter(
        "Variables for the template. A variable that the server sets is refused."
    )
    disable_chat_template: bool | None = parameter(
        "The prompt is the text of the messages, without a template."
    )
    add_generation_prompt: bool | None = parameter(
        "Whether the prompt ends with the start of an answer. Default: true."
    )
    continue_final_message: bool | None = parameter("The answer continues the last message.")
    documents: Documents | None = parameter(
        "Documents for the template; refused if the template uses none."
    )

    def rendering(self, effort: core.Effort | None = None) -> core.Rendering:
        """Return how messages become text. Raises `InvalidRequest` for contradicting fields."""
        continues = self.continues_final_message
        self._refuse_contradictions(continues=continues)
        return core.Rendering(
            template=self.chat_template,
            uses_template=not self.disable_chat_template,
            documents=tuple(self.documents or ()),
            effort=effort,
            adds_generation_prompt=not continues and self.add_generation_prompt is not False,
            continues_final_message=continues,
        )

    @property
    def continues_final_message(self) -> bool:
        """Whether the prompt ends inside the last message."""
        return bool(self.continue_final_message)

    def _refuse_contradictions(self, *, continues: bool) -> None:
        if continues and self.add_generation_prompt:
            raise refusal(
                "continue_final_message",
                "and `add_generation_prompt` exclude each other: a prompt ends inside the last "
                "message or starts a new one",
            )
        if not self.disable_chat_template:
            return
        needing = {
            "chat_template": self.chat_template,
            "continue_final_message": continues,
            "documents": self.documents,
        }
        for name, value in needing.items():
            if value:
                raise refusal(name, "needs a chat template, but `disable_chat_template` is true")


# -- The body


Priority = Annotated[int, Field(ge=0, le=2**63 - 1)]
# These characters are safe in URLs, logs and file names.
RequestId = Annotated[
    str, Field(min_length=1, pattern=r"^[A-Za-z0-9._:\-]+$"), Limited(field_limits.REQUEST_ID)
]
CacheSalt = Annotated[str, Field(min_length=1), Limited(field_limits.CACHE_SALT)]


class StreamOptions(Wire):
    """`stream_options`. Without `include_obfuscation` deltas have no padding."""

    include_usage: bool | None = parameter(
        "A last chunk has the total usage, and `usage` is null before it. Responses always end "
        "with their usage."
    )
    include_obfuscation: bool | None = parameter("Pads deltas to equal sizes. Default: false.")
    continuous_usage_stats: bool | None = parameter(
        "With `include_usage`, every chunk has the usage so far."
    )


class DeliveryFields(Wire):
    """Which model answers, and how the answer is sent: `Handling` and the streaming options."""

    model: ModelName | None = parameter(MODEL)
    stream: bool | None = parameter(
        "Sends the answer as server-sent events; the last is `data: [DONE]`."
    )
    stream_options: StreamOptions | None = parameter("Options of a stream; only with `stream`.")
    stream_interval: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = parameter(
        "The least number of tokens in a chunk, except the first and the last."
    )
    priority: Priority | None = parameter(
        "A key's waiting requests with a lower number start first. At least 0, the default."
    )
    request_id: RequestId | None = parameter("A part of the answer's id.")
    cache_salt: CacheSalt | None = parameter(
        "Only prompts of the same organisation with the same salt share the prefix cache, unless "
        "the model lets organisations share it."
    )

    @property
    def includes_usage(self) -> bool:
        """Whether a stream of chunks ends with the total usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def is_obfuscated(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_obfuscation)

    @property
    def wants_progress(self) -> bool:
        """Whether each chunk has the usage so far. As in vLLM, only with the total usage."""
        options = self.stream_options
        return options is not None and self.includes_usage and bool(options.continuous_usage_stats)


class ArrivalFields(Wire):
    """For the endpoints whose answers have choices."""

    return_arrival_time: bool | None = parameter(
        "Adds `arrival_time` to each chunk and choice, as FastDeploy does: the seconds from the "
        "request to its tokens. Default: that of the model's options, else false."
    )


def _in_text(value: object) -> object:
    """FastDeploy's metadata may have any JSON values. Strict clients read only strings."""
    if not isinstance(value, dict):
        return value
    return {
        key: each if isinstance(each, str) else json_bytes(each).decode()
        for key, each in value.items()
    }


_Key = Annotated[str, Limited(field_limits.METADATA_KEY)]
_Value = Annotated[str, Limited(field_limits.METADATA_VALUE)]
Metadata = Annotated[dict[_Key, _Value], Limited(field_limits.METADATA)]
AnyMetadata = Annotated[
    dict[_Key, _Value],
    BeforeValidator(_in_text, json_schema_input_type=dict[_Key, Any]),
    Limited(field_limits.METADATA),
]


_REPEATED = "Repeated by Responses, without other effect."
_END_USER = (
    "The end user, for limits and reports of usage: the first 64 characters, or a hash. "
    "Repeated by Responses."
)
_AUTOMATIC_CACHE = "The prefix cache is automatic: equal starts of prompts stay while it has space."


class PromptCacheOptions(Wire):
    """`prompt_cache_options`. The last two members are refused."""

    mode: Literal["implicit", "explicit"] | None = parameter(_REPEATED, changes_nothing=True)
    ttl: Literal["30m", "12h"] | None = parameter(_REPEATED, changes_nothing=True)
    prewarm: Literal[False] | None = parameter(
        "Only false: to fill the cache, send a request for one token.", changes_nothing=True
    )
    comparison_response_id: None = parameter(
        "Only null: this server compares no responses.", changes_nothing=True
    )


def _user_id(value: object) -> object:
    """Some clients send an object with the user's `id` and name."""
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        return value["id"]
    if isinstance(value, dict):
        raise invalid("must be a string, or an object with the string `id`")
    return value


class UserObject(BaseModel):
    """A user. The server reads only the id."""

    id: str


User = Annotated[
    Identifier, BeforeValidator(_user_id, json_schema_input_type=Identifier | UserObject)
]
SafetyIdentifier = Annotated[str, Limited(field_limits.SAFETY_IDENTIFIER)]


class GenerationBody(FormatFields, decoding.DecodingFields, DeliveryFields):
    """The parameters of every generation endpoint."""

    add_special_tokens: bool | None = parameter(
        "Whether the tokenizer adds tokens such as BOS. Default: only for raw prompts, because "
        "chat templates write their own."
    )
    truncate_prompt_tokens: TruncateTo | None = parameter(
        "Keeps this many tokens of the prompt; -1: as many as fit into the context with the answer."
    )
    truncation_side: Literal["left", "right"] | None = parameter(
        "The side of the prompt that truncation removes. Default: `left`."
    )
    return_prompt_text: bool | None = parameter(
        "Returns the text of the prompt that the model read."
    )
    service_tier: Identifier | None = parameter(
        "`flex` waits for all requests of other tiers, which are one: the answer has `flex` or "
        "`default`."
    )
    user: User | None = parameter(
        f"A text, or an object with its `id`. {_END_USER}", changes_nothing=True
    )
    safety_identifier: SafetyIdentifier | None = parameter(
        f"{_END_USER} Replaces `user`.", changes_nothing=True
    )
    metadata: AnyMetadata | None = parameter(
        "The answer repeats it; at most 16 pairs.", changes_nothing=True
    )
    store: bool | None = parameter(
        "Whether the answer is stored. Responses under `/v1` are stored unless this is false, "
        "everything else if it is true; completions and messages never. The project of the key "
        "says for how long. A response says in `store` whether it was stored."
    )
    prompt_cache_key: Identifier | None = parameter(
        f"Repeated by Responses. {_AUTOMATIC_CACHE}", changes_nothing=True
    )
    # The spelling with a hyphen is that of OpenAI's first description.
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = parameter(
        f"Repeated by Responses. {_AUTOMATIC_CACHE}", changes_nothing=True
    )
    prompt_cache_options: PromptCacheOptions | None = parameter(
        f"Repeated by Responses. {_AUTOMATIC_CACHE}", changes_nothing=True
    )
    mm_hashes: MediaHashes | None = parameter(
        "The SHA-256 of each picture, video and file, in their order, as 64 hex digits. A file "
        "with another hash is refused; usage records have the hashes."
    )
    include_reasoning: bool | None = parameter(
        "False leaves the reasoning out of the answer. Its tokens still count."
    )
    skip_special_tokens: bool | None = parameter(
        "False shows special tokens in the text. Reasoning and tool calls are then not parsed."
    )

    @property
    def end_user(self) -> str:
        """The id of the client's own user; empty: none was sent."""
        return self.safety_identifier or self.user or ""

    def encoding(self) -> core.Encoding:
        limit = self.truncate_prompt_tokens
        return core.Encoding(
            adds_special_tokens=self.add_special_tokens,
            max_tokens=core.ALL_THAT_FIT if limit == -1 else limit,
            keeps_start=self.truncation_side == "right",
        )

    def handling(self) -> core.Handling:
        return core.Handling(
            priority=self.priority or 0,
            stream_interval=self.stream_interval or 1,
            answer_id=self.request_id,
            is_flex=self.service_tier == "flex",
            cache_salt=self.cache_salt,
            end_user=self.end_user,
        )

    def refuse_contradictions(self) -> None:
        """Raises `InvalidRequest` for fields that contradict or need each other."""
        self.refuse_min_above_max()
        if self.prompt_logprobs is not None and self.stream:
            raise refusal("prompt_logprobs", "are not available when `stream` is true")
        if self.stream_options is not None and not self.stream:
            raise refusal("stream_options", "is only allowed when `stream` is true")

    def hosted_features(self) -> tuple[str, ...]:
        """Return the features of OpenAI's service that the client asks for, and does not get."""
        return ("store",) if self.store else ()

    def _with_hosted(self, unused: core.Unused, *, is_kept: bool) -> core.Unused:
        hosted = tuple(each for each in self.hosted_features() if not (is_kept and each == "store"))
        return replace(unused, hosted=hosted) if hosted else unused

    def request(
        self,
        endpoint: core.Endpoint,
        prompt: core.Conversation | core.RawPrompts,
        dialect: Dialect,
        *,
        unused: core.Unused = core.NOTHING_UNUSED,
        grammar: core.Grammar | None = None,
        default_limit: int | None = None,
        shows_arrival: bool | None = None,
        parses_output: bool | None = None,
        is_kept: bool = False,
    ) -> core.GenerationRequest:
        """Return the request, independent of the protocol. Raises `InvalidRequest`."""
        refuse_long(core.PROMPT_FIELDS[endpoint], prompt.num_chars)
        if isinstance(prompt, core.Conversation):
            check_media(prompt, dialect, core.PROMPT_FIELDS[endpoint])
        prompt = with_hashes(prompt, self.mm_hashes or ())
        n, is_streamed = self.n or 1, bool(self.stream)
        return core.GenerationRequest(
            endpoint=endpoint,
            model=self.model,
            prompt=prompt,
            sampling=self.sampling(),
            stopping=self.stopping(dialect, is_streamed=is_streamed, default_limit=default_limit),
            n=n,
            beams=self.beams(n, dialect),
            assistance=self.speculation(),
            num_candidates=self.num_candidates(n, dialect, is_streamed=is_streamed),
            grammar=grammar,
            is_streamed=is_streamed,
            wants_progress=self.wants_progress,
            shows_arrival=shows_arrival,
            parses_output=parses_output,
            steering=self.steering(),
            logprobs=self.logprobs_options(),
            wants_token_ids=bool(self.return_token_ids),
            wants_prompt_text=bool(self.return_prompt_text),
            dialect=dialect,
            encoding=self.encoding(),
            hides_reasoning=self.include_reasoning is False,
            shows_special_tokens=self.skip_special_tokens is False,
            handling=self.handling(),
            unused=self._with_hosted(unused, is_kept=is_kept),
            sent=sent_parameters(self),
        )
