"""The members of the four systems' answers, and those of Vinery's.

A row has a member, the letters of the systems that have it (as in `parameter`), and a note.
The note of a member that Vinery does not have begins with "Left out" and states the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from vinery_serving.protocols.openapi.answers import ANSWERS as TYPES

_DURATION = "Left out: clients measure it themselves, and `openai-processing-ms` is the server's."
_TEXT_ONLY = "Left out: models served here write text only."

_CHAT = f"""
id AVF | unique; OpenVINO Model Server's answer has none
object OAVF
created OAVF
model OAVF
system_fingerprint A | changes with the server's version
service_tier A | `default`, if the request has one
metadata A | repeated
choices.index OAVF
choices.message.role OAVF
choices.message.content OAVF
choices.message.reasoning_content OF | the same text under both names
choices.message.reasoning V | the same text under both names
choices.message.refusal A | null
choices.message.tool_calls OAVF | absent without calls
choices.message.function_call A | for requests with `functions`
choices.message.prompt_token_ids F | with `return_token_ids`
choices.message.completion_token_ids F | with `return_token_ids`
choices.message.prompt_tokens F | with `return_token_ids`: their text
choices.message.completion_tokens F | with `return_token_ids`: their text, special tokens included
choices.message.annotations A | Left out: they belong to web search.
choices.message.audio A | {_TEXT_ONLY}
choices.logprobs.content AVF | also in streams
choices.finish_reason OAVF | never `recover_stop`: FastDeploy's own recovery
choices.token_ids V | with `return_token_ids`
choices.stop_reason V | the stop string or token, `repetition_detected`, or `quota_exceeded`
choices.arrival_time F | with `return_arrival_time`
usage.prompt_tokens OAVF
usage.completion_tokens OAVF
usage.total_tokens OAVF
usage.prompt_tokens_details.cached_tokens AVF | exact
usage.prompt_tokens_details.image_tokens F | of pictures, if the prompt has any
usage.prompt_tokens_details.video_tokens F | of videos, if the prompt has any
usage.completion_tokens_details.reasoning_tokens AVF
usage.completion_tokens_details.accepted_prediction_tokens A | for models with speculative decoding
usage.completion_tokens_details.rejected_prediction_tokens A | for models with speculative decoding
usage.completion_tokens_details.image_tokens F | {_TEXT_ONLY}
prompt_token_ids V | with `return_token_ids`
prompt_text V | with `return_prompt_text`
prompt_logprobs V | with `prompt_logprobs`
metrics V | {_DURATION}
kv_transfer_params V | Left out: an engine cannot hand its caches to another.
"""

_COMPLETIONS = """
id AVF | unique; OpenVINO Model Server's answer has none
object OAVF
created OAVF
model OAVF
system_fingerprint A
choices.index OAVF
choices.text OAVF
choices.finish_reason OAVF
choices.logprobs.tokens AVF
choices.logprobs.token_logprobs OAVF
choices.logprobs.top_logprobs AVF
choices.logprobs.text_offset OAVF | in characters; on /v1 from the start of the prompt
choices.prompt_token_ids VF | with `return_token_ids`
choices.token_ids V | with `return_token_ids`
choices.completion_token_ids F | with `return_token_ids`
choices.prompt_text V | with `return_prompt_text`
choices.prompt_logprobs V | with `prompt_logprobs`
choices.prompt_tokens F | with `return_token_ids`: their text
choices.completion_tokens F | with `return_token_ids`: their text, special tokens included
choices.reasoning_content F | with `parse_output`
choices.tool_calls F | with `parse_output`
choices.stop_reason V | the stop string or token, `repetition_detected`, or `quota_exceeded`
choices.arrival_time F | with `return_arrival_time`
usage OAVF | with the same details as chats
"""

_RESPONSES = """
id OAV | `resp_`, unique
object OAV
created_at OAV
completed_at OA
status OAV
error OAV
incomplete_details OAV | `max_output_tokens`; on /v3 `max_tokens`
model OAV
output.id OAV | unique
output.type OAV | `message`, `reasoning`, `function_call` or `custom_tool_call`
output.status OAV
output.content.text OAV
output.content.annotations OAV | empty
output.content.logprobs AV
output.summary OAV | the whole reasoning
output.encrypted_content A | with `include`
output.call_id OAV
output.name OAV
output.arguments OAV
usage.input_tokens OAV
usage.input_tokens_details.cached_tokens AV
usage.output_tokens OAV
usage.output_tokens_details.reasoning_tokens AV
usage.total_tokens OAV
instructions AV | repeated
max_output_tokens OAV | repeated
max_tool_calls AV | repeated
parallel_tool_calls OAV | repeated
previous_response_id AV | null: no answers are stored
reasoning AV | repeated
store OAV | false: no answers are stored
temperature OAV | the value in force
text OAV | repeated
tool_choice OAV | repeated
tools OAV | repeated whole, in the flat form
top_p OAV | the value in force
top_logprobs AV | repeated
truncation OAV | repeated
metadata OAV | repeated
user AV | repeated
service_tier AV | `default`
safety_identifier A | repeated
prompt_cache_key A | repeated
background AV | false
output_text A | Left out: OpenAI's clients build it from `output`.
"""

_MESSAGES = """
id - | `msg_`, unique
type - | `message`
role -
model -
content.type - | `text`, `thinking` or `tool_use`
content.text -
content.thinking - | the whole reasoning
content.signature - | a constant: this server reads none
content.id - | `toolu_`, unique
content.name -
content.input - | `INVALID_JSON` is its member if the model wrote no JSON object
stop_reason - | `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, or that of a full context
stop_sequence -
usage.input_tokens - | without those from the prefix cache
usage.cache_read_input_tokens - | exact
usage.cache_creation_input_tokens - | 0: the prefix cache fills itself
usage.output_tokens -
usage.output_tokens_details.thinking_tokens -
"""

_TOKENIZER = """
tokenizer_class V
bos_token V | null if the model has none, like the other named tokens
eos_token V
unk_token V
sep_token V
pad_token V
cls_token V
added_tokens_decoder V | by id
model_max_length V | the context, in tokens
chat_template V | needs a key; `return_prompt_text` returns the text that it renders
"""


_EMBEDDINGS = """
object OAVF
model AVF
data.object OAVF
data.index OAVF
data.embedding OAVF | numbers, or with `encoding_format: base64` a text
usage.prompt_tokens OAVF
usage.total_tokens OAVF
id VF | Left out: OpenAI's answer has none; `x-request-id` has it.
created VF | Left out: OpenAI's answer has none.
"""

_RERANK = """
id V | that of `x-request-id`
model V
object - | `list`, as Jina's
results.index OV | in `documents` of the request
results.relevance_score OV | from 0 to 1; the highest is first
results.document OV | with `return_documents`
usage.prompt_tokens V | of all queries and documents
usage.total_tokens V
meta.api_version.version - | as Cohere's
meta.tokens.input_tokens - | as Cohere's
meta.tokens.output_tokens - | 0
"""

_SCORES = """
id V | that of `x-request-id`
object V
model V
data.index V
data.object V
data.score V | from 0 to 1
usage.prompt_tokens V
usage.total_tokens V
created V | Left out: clients do not read it.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an answer."""

    path: str
    systems: str
    note: str

    @property
    def is_present(self) -> bool:
        """Whether Vinery's answer has the member."""
        return not self.note.startswith("Left out")

    @property
    def text(self) -> str:
        """The cell of the document."""
        return f"✓ {self.note}".strip() if self.is_present else self.note


def _read(text: str) -> tuple[Member, ...]:
    members = []
    for line in text.strip().splitlines():
        head, _, note = line.partition(" | ")
        path, systems = head.split()
        members.append(Member(path, systems.removeprefix("-"), note))
    return tuple(members)


ANSWERS: Final[Mapping[type[BaseModel], tuple[Member, ...]]] = {
    TYPES["ChatCompletion"]: _read(_CHAT),
    TYPES["Completion"]: _read(_COMPLETIONS),
    TYPES["Response"]: _read(_RESPONSES),
    TYPES["MessageAnswer"]: _read(_MESSAGES),
    TYPES["Embeddings"]: _read(_EMBEDDINGS),
    TYPES["Rerank"]: _read(_RERANK),
    TYPES["Scores"]: _read(_SCORES),
    TYPES["TokenizerInfo"]: _read(_TOKENIZER),
}
