"""Reads the fields of a body. No field is dropped without a trace.

A field belongs to the endpoint, is refused, belongs to another server, or is unknown. Unknown
fields are ignored, as clients expect, and reported. OpenAI's clients keep data of their own in
messages, items and tools, so unknown members of list entries are never refused.

The server refuses a parameter by name that would change the answer and is not implemented: an
answer that ignores it would mislead the client. A parameter of another server with exactly the
meaning of one of this server is honoured: an alias turns its value into fields of the body, by
name; `a.b` is the member b of a. One that cannot change the answer is accepted, and the header
`x-vinery-ignored` names it. To add or implement a parameter, add or delete a row; the documents
follow. The sources are the servers' documents of 2026.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Final, Generic, NamedTuple

from pydantic import BaseModel

from vinery_serving.core.errors import InvalidRequest, UnsupportedParameter
from vinery_serving.core.request import NOTHING_UNUSED, Unused
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common import reading
from vinery_serving.protocols.common.generation import GenerationBody
from vinery_serving.protocols.common.reading import refusal
from vinery_serving.protocols.common.tools import HostedTool

# -- Parameters that this server refuses


@dataclass(frozen=True, slots=True)
class Refused:
    """A parameter that the server refuses. `reason` follows "is not supported by this server".
    `harmless` holds the values that ask for the default; the server accepts them, and null."""

    reason: str
    harmless: tuple[object, ...] = ()

    def message(self, name: str) -> str:
        or_default = f", or set it to {json.dumps(self.harmless[0])}" if self.harmless else ""
        return f"`{name}` is not supported by this server: {self.reason}. Leave it out{or_default}."

    def check(self, path: str, value: object) -> None:
        """Raises `UnsupportedParameter` unless `value` asks for the default."""
        if not self.accepts(value):
            raise UnsupportedParameter(self.message(path), param=path)

    def accepts(self, value: object) -> bool:
        """Return whether `value` asks for the default."""
        return value is None or any(are_equal(value, default) for default in self.harmless)


def are_equal(value: object, other: object) -> bool:
    """As in JSON, false is not 0."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


Refusals = Mapping[str, Refused]
_OWN_PIXELS = "it scales pictures and videos by the model's own files; use `detail`"
_WRITES_TEXT = "its models write text only"
_NO_MEMBER = "the answer of this endpoint has no member for {}; use `{}`"

_EVERYWHERE: Refusals = {
    "return_token_offsets": Refused(
        "vLLM's endpoints that only render prompts use it; use `/tokenize` with "
        "`return_token_strs`",
        (False,),
    ),
    "return_weight_versions": Refused(
        "the weights of a model do not change while it is served", (False,)
    ),
    "routed_experts_prompt_start": Refused(
        "the engine does not report which experts computed a token", (0,)
    ),
    "include_draft_logprobs": Refused(
        "the engine does not report the log-probabilities of a draft model", (False,)
    ),
    "watermarking": Refused("the engine samples tokens without a watermark", (False,)),
    "logits_processors": Refused(
        "a request cannot contain code; an administrator registers processors, and "
        "`logits_processors_args` passes arguments to them",
        ([],),
    ),
    "detokenize": Refused("answers are text; use `return_token_ids` for the token ids", (True,)),
    "prompt_embeds": Refused(
        "the engine takes the tokens of a prompt, not their embeddings; send text", ([],)
    ),
    "kv_transfer_params": Refused(
        "each engine computes its own prompts and sends its cache to no other engine", ({},)
    ),
    "ec_transfer_params": Refused("pictures and videos are encoded where they are used", ({},)),
    "mm_payload": Refused("pictures and videos are parts of messages", ({},)),
    "mm_processor_kwargs": Refused(_OWN_PIXELS, ({},)),
    "media_io_kwargs": Refused(_OWN_PIXELS, ({},)),
}

_IN_CONVERSATIONS: Refusals = {
    "modalities": Refused(_WRITES_TEXT, (["text"], [])),
    "audio": Refused(_WRITES_TEXT),
    "chunk_frames": Refused(_WRITES_TEXT),
    "moderation": Refused("it has no moderation model"),
    "web_search_options": Refused("it has no web search; give the model a function that searches"),
}

_WITHOUT_CHOICES: Refusals = {
    "prompt_logprobs": Refused(_NO_MEMBER.format("them", "completions")),
    "return_token_ids": Refused(_NO_MEMBER.format("them", "completions"), (False,)),
    "return_prompt_text": Refused(_NO_MEMBER.format("it", "chat/completions"), (False,)),
    "return_arrival_time": Refused(_NO_MEMBER.format("it", "chat/completions"), (False,)),
    "echo": Refused(_NO_MEMBER.format("a prompt", "completions"), (False,)),
}

_IN_RESPONSES: Refusals = {
    **_WITHOUT_CHOICES,
    "prompt_token_ids": Refused(
        "this endpoint reads `input`; use `chat/completions` or `completions`", ([],)
    ),
    "access_programs": Refused("they belong to OpenAI's own models"),
    "background_options": Refused("background responses begin as soon as they can"),
    "enable_response_messages": Refused(
        _NO_MEMBER.format("the model's literal input and output", "completions"), (False,)
    ),
    "previous_input_messages": Refused(
        "their format belongs to one family of models; send the whole conversation in `input`",
        ([],),
    ),
    "personality": Refused("the presets belong to OpenAI's own models; use `instructions`"),
    "prompt": Refused("it stores no prompts; use `instructions` and `input`"),
}

_IN_MESSAGES: Refusals = {
    "stop": Refused("this endpoint reads `stop_sequences`", ([], "")),
    "n": Refused("a message is one answer", (1,)),
    "logprobs": Refused(_NO_MEMBER.format("them", "chat/completions"), (False, 0)),
    "top_logprobs": Refused(_NO_MEMBER.format("them", "chat/completions"), (0,)),
    **_WITHOUT_CHOICES,
    "prompt_token_ids": Refused(
        "this endpoint reads `messages`; use `chat/completions` or `completions`", ([],)
    ),
    "response_format": Refused("this endpoint reads `output_config.format` instead"),
    "container": Refused("it runs no code; give the model a tool that does"),
    "mcp_servers": Refused("it calls no tools; give the model tools", ([],)),
}

_SCALED = "how vectors are scaled is an option of the served model"
_TOKENS = "send token ids to choose the special tokens of a text"
_PAIR_TOKENS = "the model decides which special tokens are around the texts"
_FLOATS = "vectors are 32-bit floats"
_SCORES = "scores are always from 0 to 1"
_PADDED = "the engine pads the texts of a batch itself"
_TEXTS_ONLY = "its models of this kind read text only"

_WITH_VECTORS: Refusals = {
    "messages": Refused("this endpoint reads `input`; send the texts of the messages in it"),
    "add_special_tokens": Refused(_TOKENS, (True,)),
    "normalize": Refused(_SCALED),
    "use_activation": Refused(_SCALED),
    "padding": Refused(_PADDED, ("do_not_pad",)),
    "mm_processor_kwargs": Refused(_TEXTS_ONLY, ({},)),
    "embed_dtype": Refused(_FLOATS, ("float32",)),
    "endianness": Refused(f"{_FLOATS} in little-endian order", ("native", "little")),
    "output_dtype": Refused(_FLOATS, ("float",)),
    "output_dimension": Refused("`dimensions` is the number of numbers of a vector"),
    "embedding_type": Refused(
        "its vectors are `float` or `base64`, as `encoding_format` asks", ("float",)
    ),
    "task": Refused("`input_type` and `prompt_name` choose the text before an input"),
    "late_chunking": Refused("each text of `input` is a text of its own", (False,)),
}

_WITH_SCORES: Refusals = {
    "add_special_tokens": Refused(_PAIR_TOKENS, (True,)),
    "use_activation": Refused(_SCORES, (True,)),
    "padding": Refused(_PADDED, ("do_not_pad",)),
    "mm_processor_kwargs": Refused(_TEXTS_ONLY, ({},)),
    "instruction": Refused("send it as the beginning of the query"),
}

_WITH_RANKS: Refusals = {
    **_WITH_SCORES,
    "rank_fields": Refused("a document is ranked by its `text`", (["text"],)),
    "top_k": Refused("`top_n` is the number of documents in the answer"),
    "raw_scores": Refused(_SCORES, (False,)),
}

REFUSED: Mapping[str, Refusals] = {
    Endpoint.CHAT: {**_EVERYWHERE, **_IN_CONVERSATIONS},
    Endpoint.COMPLETIONS: _EVERYWHERE,
    Endpoint.RESPONSES: {**_EVERYWHERE, **_IN_CONVERSATIONS, **_IN_RESPONSES},
    Endpoint.MESSAGES: {**_EVERYWHERE, **_IN_CONVERSATIONS, **_IN_MESSAGES},
    Endpoint.EMBEDDINGS: _WITH_VECTORS,
    Endpoint.RERANK: _WITH_RANKS,
    Endpoint.SCORE: _WITH_SCORES,
}


# -- Parameters of other servers and endpoints

Fields = Mapping[str, Any]
# Takes the endpoint, and the path and the value of the alias. Raises `InvalidRequest`.
Read = Callable[[str, str, Any], Fields]


@dataclass(frozen=True, slots=True)
class Alias:
    """`meaning` is its description for users."""

    meaning: str
    read: Read


# Fields with the same meaning: an alias must agree with each.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens")
}

_EFFORTS: Final[Mapping[str, str]] = {
    Endpoint.CHAT: "reasoning_effort",
    Endpoint.RESPONSES: "reasoning.effort",
    Endpoint.MESSAGES: "output_config.effort",
}


def _same_as(name: str) -> Alias:
    return Alias(f"The same as `{name}`.", lambda endpoint, path, value: {name: value})


def _effort(endpoint: str, path: str, value: Any) -> Fields:
    if endpoint not in _EFFORTS:
        raise UnsupportedParameter(
            f"`{path}` needs a chat template, and completions have none. Leave it out, or use "
            "chat/completions.",
            param=path,
        )
    return {_EFFORTS[endpoint]: value}


def _switch_or_effort(endpoint: str, path: str, value: Any) -> Fields:
    """Read a boolean as a switch, and other values as an effort."""
    if not isinstance(value, bool):
        return _effort(endpoint, path, value)
    none, switches = _effort(endpoint, path, "none"), ("enable_thinking", "thinking")
    return {f"chat_template_kwargs.{name}": True for name in switches} if value else none


def _thinking(endpoint: str, path: str, value: Any) -> Fields:
    match value:
        case {"type": "enabled" | "disabled" as kind, **rest} if not rest.keys() - {
            "budget_tokens"
        }:
            fields = dict(_switch_or_effort(endpoint, path, kind == "enabled"))
            if (budget := rest.get("budget_tokens")) is not None:
                fields["thinking_token_budget"] = budget
            return fields
    raise refusal(path, "must have the `type` enabled or disabled, and may have `budget_tokens`")


def _reasoning(endpoint: str, path: str, value: Any) -> Fields:
    known = {"effort", "max_tokens", "exclude", "enabled", "summary"}
    if not isinstance(value, dict) or value.keys() - known:
        raise refusal(path, "must be an object with `effort`, `max_tokens`, `exclude` or `enabled`")
    fields: dict[str, Any] = {}
    if (enabled := value.get("enabled")) is not None:
        fields |= _switch_or_effort(endpoint, f"{path}.enabled", enabled)
    if (effort := value.get("effort")) is not None:
        fields |= _effort(endpoint, path, effort)
    if (budget := value.get("max_tokens")) is not None:
        fields["thinking_token_budget"] = budget
    if (excluded := value.get("exclude")) is not None:
        fields["include_reasoning"] = not excluded if isinstance(excluded, bool) else excluded
    return fields


REASONING_SWITCH: Final = Alias(
    "True switches the template's reasoning on, false is the effort `none`; low, medium and high "
    "are efforts.",
    _switch_or_effort,
)
THINKING: Final = Alias(
    "An object: its `type` enabled or disabled is a switch as `enable_thinking`, and "
    "`budget_tokens` is `thinking_token_budget`.",
    _thinking,
)
REASONING: Final = Alias(
    "An object: `effort` is `reasoning_effort`, `max_tokens` is `thinking_token_budget`, `exclude` "
    "is the opposite of `include_reasoning`, and `enabled` a switch as `enable_thinking`.",
    _reasoning,
)
EFFORT: Final = Alias("The same as `reasoning.effort`.", _effort)


@dataclass(frozen=True, slots=True)
class Harmless:
    """A parameter without effect here that cannot change the answer. `reason` is a sentence."""

    reason: str


Fate = Alias | Refused | Harmless


@dataclass(frozen=True, slots=True)
class ForeignParameter:
    name: str
    servers: str
    fate: Fate

    @property
    def outcome(self) -> tuple[str, str]:
        """`honoured`, `ignored` or `refused`, and the explanation."""
        match self.fate:
            case Alias() as alias:
                return "honoured", alias.meaning
            case Harmless() as harmless:
                return "ignored", harmless.reason
            case Refused() as refused:
                return "refused", refused.message(self.name)


_ROUTED = Harmless("This server is the only provider of its models.")

_ROWS: Final[Mapping[str, Mapping[str, Fate]]] = {
    "vLLM": {
        "guided_whitespace_pattern": Refused(
            "the answer has at most one space after a comma or colon", harmless=("",)
        ),
        "vllm_xargs": _same_as("logits_processors_args"),
        "guided_decoding_backend": Harmless("There is one compiler of grammars."),
        "spaces_between_special_tokens": Harmless("Tokenizers write no such spaces."),
    },
    "Anthropic": {
        "max_tokens_to_sample": _same_as("max_tokens"),
        "thinking": THINKING,
        "system": Refused("send a message with the role system", harmless=("", [])),
        "mcp_servers": Refused("it calls no tools; give the model functions", harmless=([],)),
        "output_config": Refused("use `response_format`", harmless=({},)),
        "anthropic_version": Harmless("This server has one version of its API."),
        "anthropic_beta": Harmless("This server has one version of its API."),
        "betas": Harmless("This server has one version of its API."),
        "cache_control": Harmless("The prefix cache is automatic."),
        "fallbacks": Refused("a request has one model", harmless=([], "default")),
        "compaction": Refused("it sends the model all messages of a request; shorten them first"),
        "thread": Refused("it stores no conversations; send all messages"),
        "billing_policy": Harmless("Usage counts for the project of the key."),
        "fallback_credit_token": _ROUTED,
        "diagnostics": Harmless("The answer has no such member."),
        "inference_geo": _ROUTED,
        "speed": _ROUTED,
        "user_profile_id": Harmless("Use `metadata`."),
        "workspace_id": _ROUTED,
    },
    "FastDeploy": {
        "enable_thinking": REASONING_SWITCH,
        "max_streaming_response_tokens": _same_as("stream_interval"),
        "reasoning_max_tokens": _same_as("thinking_token_budget"),
    },
    "OpenRouter": {
        "reasoning": REASONING,
        "session_id": Harmless("The prefix cache is automatic."),
    },
    "OpenAI, at another endpoint": {
        "reasoning_effort": EFFORT,
        "messages": Refused("this endpoint reads another field", harmless=([],)),
        "prompt": Refused("this endpoint reads another field", harmless=("", [])),
        "input": Refused("this endpoint reads another field", harmless=("", [])),
        "instructions": Refused("send a system message", harmless=("",)),
        "text": Refused("use `response_format`", harmless=({},)),
        "tools": Refused("use chat/completions or responses", harmless=([],)),
        "tool_choice": Refused("use chat/completions or responses", harmless=("none", "auto")),
        "functions": Refused("use `tools`, of chat/completions or responses", harmless=([],)),
        "function_call": Refused("use `tool_choice`", harmless=("none", "auto")),
        "suffix": Refused("use completions", harmless=("",)),
        "chat_template": Refused("this endpoint uses no template", harmless=("",)),
        "chat_template_kwargs": Refused("this endpoint uses no template", harmless=({},)),
        "documents": Refused("this endpoint uses no template", harmless=([],)),
        "continue_final_message": Refused("this endpoint uses no template", harmless=(False,)),
        "truncation": Refused("use `truncate_prompt_tokens`", harmless=("disabled",)),
        "top_logprobs": Refused("use `logprobs`", harmless=(0,)),
        "conversation": Refused("only `responses` has them; send all messages"),
        "previous_response_id": Refused("only `responses` has it; send all messages"),
        "background": Refused("only `responses` has it", harmless=(False,)),
        "include": Refused("use `logprobs`", harmless=([],)),
        "parallel_tool_calls": Harmless("This endpoint has no tools."),
        "verbosity": Harmless("The served models have no such setting."),
        "prediction": Harmless("A hint for speed."),
    },
}  # fmt: skip

FOREIGN: Final[Mapping[str, ForeignParameter]] = {
    name: ForeignParameter(name, servers, fate)
    for servers, rows in _ROWS.items()
    for name, fate in rows.items()
}


# -- Reading a body

_END_OF_NAME: Final = re.compile(r"[.\[]")


class Body(NamedTuple, Generic[reading.WireT]):
    """A body, and the fields without effect."""

    wire: reading.WireT
    unused: Unused


def read_body(endpoint: str, model: type[reading.WireT], body: bytes) -> Body[reading.WireT]:
    """Read a body as `model`. Raises `UnsupportedParameter` for the first refused parameter,
    then `InvalidRequest` for the first error."""
    fields = _Fields(endpoint, model, REFUSED.get(endpoint, {}))
    fields.take(reading.read_object(body))
    fields.put_aliases()
    members = reading.with_integers(model, fields.members)
    try:
        wire = reading.read_model(model, members)
    except InvalidRequest as error:
        raise fields.renamed(error) from None
    own = {name: value for name, value in members.items() if name in known_fields(model)}
    unknown = dict.fromkeys(fields.unknown, False) | unknown_fields(wire, own)
    return Body(wire, unused_fields(unknown, fields.harmless))


@dataclass(slots=True)
class _Fields:
    endpoint: str
    model: type[BaseModel]
    refused: Refusals
    members: dict[str, Any] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    harmless: list[str] = field(default_factory=list)
    aliases: list[tuple[str, Any, Alias]] = field(default_factory=list)
    # The client's names of aliased fields, by this server's names.
    origins: dict[str, str] = field(default_factory=dict)

    def take(self, body: Mapping[str, Any]) -> None:
        """Take all fields. Aliases wait for `put_aliases`. Raises `InvalidRequest`."""
        own, refused = known_fields(self.model), self.refused
        for name, value in body.items():
            if name in refused:
                refused[name].check(name, value)
            if name in own or name in refused:
                self.members[name] = value
            elif value is not None:
                self._take_foreign(name, value)

    def _take_foreign(self, name: str, value: Any) -> None:
        generates = issubclass(self.model, GenerationBody)
        foreign = FOREIGN.get(name) if generates else None
        match None if foreign is None else foreign.fate:
            case Alias() as alias:
                self.aliases.append((name, value, alias))
            case Refused() as refused:
                refused.check(name, value)
            case Harmless():
                self.harmless.append(name)
            case None:
                self.unknown.append(name)

    def put_aliases(self) -> None:
        """Raises `InvalidRequest` for an alias that contradicts a field of the body."""
        for sent, given, alias in self.aliases:
            for path, value in alias.read(self.endpoint, sent, given).items():
                if path in self.refused:
                    self.refused[path].check(sent, given)
                self._refuse_other_value(sent, path, value)
                self._set(path, value)
                self.origins[path] = sent

    def _refuse_other_value(self, sent: str, path: str, value: Any) -> None:
        for name in SYNONYMS.get(path, (path,)):
            known = self._get(name)
            if known is not None and not are_equal(known, value):
                other = self.origins.get(name, name)
                raise reading.refusal(sent, f"contradicts `{other}`. Send one of them")

    def _get(self, path: str) -> Any:
        name, _, member = path.partition(".")
        value = self.members.get(name)
        return value.get(member) if member and isinstance(value, dict) else value

    def _set(self, path: str, value: Any) -> None:
        name, _, member = path.partition(".")
        known = self.members.get(name)
        if not member:
            self.members[name] = value
        elif known is None or isinstance(known, dict):  # other values are refused later
            self.members[name] = {**(known or {}), member: value}

    def renamed(self, error: InvalidRequest) -> InvalidRequest:
        """Return the error with the client's name of the field."""
        param = error.param or ""
        name = _END_OF_NAME.split(param)[0]
        if name not in self.origins:
            return error
        path = self.origins[name] + param.removeprefix(name)
        return type(error)(error.message.replace(f"`{param}`", f"`{path}`", 1), param=path)


_TAGS: Final = frozenset(("type", "role"))  # the members that choose a model
# The most unknown names in a report, and the most characters of a name.
_MAX_NAMES: Final = 32
_MAX_NAME_CHARS: Final = 128


def unused_fields(unknown: Mapping[str, bool], harmless: Iterable[str] = ()) -> Unused:
    """Return the report on `unknown_fields` and others that are harmless."""
    names = [path for path, is_harmless in unknown.items() if not is_harmless]
    kept = (path for path, is_harmless in unknown.items() if is_harmless)
    unused = Unused(_shortened(names), len(names), _shortened((*harmless, *kept)))
    return unused if unused != NOTHING_UNUSED else NOTHING_UNUSED


def _shortened(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name[:_MAX_NAME_CHARS] for name in islice(names, _MAX_NAMES))


def unknown_fields(wire: BaseModel, members: Mapping[str, Any]) -> dict[str, bool]:
    """Return the paths of all members that the models in `wire` do not have, without indices.
    `members` was read as `wire`. True: the member is harmless, as in the entries of a list."""
    return dict(_unknown_in(wire, members, ""))


def _unknown_in(
    value: object, sent: object, path: str, *, is_in_list: bool = False
) -> Iterator[tuple[str, bool]]:
    if isinstance(value, list | tuple) and isinstance(sent, list):
        for each, one in zip(value, sent, strict=False):
            yield from _unknown_in(each, one, path, is_in_list=True)
    elif isinstance(value, BaseModel) and isinstance(sent, dict) and not _is_open(value):
        known = known_fields(type(value))
        for name, member in sent.items():
            inner = f"{path}.{name}" if path else name
            if name in known:
                if isinstance(member, dict | list):
                    own = getattr(value, known[name])
                    yield from _unknown_in(own, member, inner, is_in_list=is_in_list)
            elif member is not None and name not in _TAGS:
                yield inner, is_in_list


def _is_open(value: BaseModel) -> bool:
    """Whether any member may be there: the grammar compiler checks tags, and OpenAI's hosted
    tools are reported as a whole."""
    # The search for an attribute that a model of Pydantic does not have is slow.
    has_tag = "tag" in known_fields(type(value)) and getattr(value, "tag", None) is not None
    return has_tag or isinstance(value, HostedTool)


@cache
def known_fields(model: type[BaseModel]) -> Mapping[str, str]:
    """The names of the fields, by the clients' names."""
    return {field.alias or name: name for name, field in model.model_fields.items()}
