"""Wrong bodies that need more than the value of one parameter, and bodies that are accepted.

The wrong values of single parameters are beside their fields, in `parameter(..., wrong=...)`.
Each row is tested on both URL trees, and `docs/errors.md` shows all of them. Errors that need a
running server are in `docs.failures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vinery_serving.core.tasks import GENERATION_ENDPOINTS, Endpoint

INVALID: Final = "invalid_value"
MISSING: Final = "missing_required_parameter"
UNSUPPORTED: Final = "unsupported_parameter"

_TREES: Final = ("v1", "v3")
_ROLES: Final = "must be one of 'system', 'developer', 'user', 'assistant', 'tool' or 'function'"
_CONTENT: Final = "must be a string or an array of content parts"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong body. `fields` replace those of the least valid body. The error has the status
    400 and the type `invalid_request_error`."""

    param: str
    fields: Mapping[str, Any]
    code: str
    message: str
    trees: tuple[str, ...] = _TREES


def wrong(
    param: str, fields: Mapping[str, Any], sentence: str, trees: tuple[str, ...] = _TREES
) -> Mistake:
    """Return a mistake for a wrong value. `sentence` follows the name in the message, or is
    the message if it begins with a name."""
    return Mistake(param, fields, INVALID, _message(param, sentence), trees)


def missing(param: str, fields: Mapping[str, Any], sentence: str = "is required") -> Mistake:
    """Return a mistake for a missing field."""
    return Mistake(param, fields, MISSING, _message(param, sentence))


def unsupported(
    param: str, fields: Mapping[str, Any], sentence: str, trees: tuple[str, ...] = _TREES
) -> Mistake:
    """Return a mistake for a parameter or a value that the server does not support."""
    return Mistake(param, fields, UNSUPPORTED, _message(param, sentence), trees)


def _message(param: str, sentence: str) -> str:
    return f"{sentence}." if sentence.startswith("`") else f"`{param}` {sentence}."


_CHAT: Sequence[Mistake] = (
    wrong("stop[1]", {"stop": ["a", ""]}, "must not be empty"),
    wrong("stop[0]", {"stop": [1]}, "must be a string"),
    wrong("stop", {"stop": list("abcde")}, "must have at most 4 entries, but has 5. Send fewer, or ask the administrator to raise VINERY_MAX_STOPS_V1", trees=("v1",)),
    wrong("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": 1}}, "must be true or false"),
    missing("messages", {"messages": None}),
    wrong("messages[0]", {"messages": ["a", 2]}, "must be an object"),
    wrong("messages[1]", {"messages": [1, "a"]}, "must be an integer"),
    wrong("messages[0]", {"messages": [-1]}, "must be at least 0"),
    wrong("prompt_token_ids[0]", {"prompt_token_ids": [2**31]}, "must be at most 2147483647"),
    missing("messages[0].role", {"messages": [{"content": "a"}]}),
    wrong("messages[0].role", {"messages": [{"role": "bot", "content": "a"}]}, _ROLES),
    missing("messages[0].content", {"messages": [{"role": "user"}]}),
    missing("messages[0].content", {"messages": [{"role": "user", "content": None}]}),
    wrong("messages[0].content", {"messages": [{"role": "user", "content": 5}]}, _CONTENT),
    missing("messages[0].content[0].type", {"messages": [{"role": "user", "content": [{"text": "a"}]}]}),
    missing("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "must have a `text`"),
    wrong("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "must be a string"),
    wrong("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "poem", "text": "a"}]}]}, "must have one of these types: text, input_text, output_text, refusal, image_url, input_image, video_url, input_video, file, input_file"),
    missing("messages[0].tool_call_id", {"messages": [{"role": "tool", "content": "4"}]}),
    missing("messages[0].tool_calls[0].function", {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}),
    wrong("messages[0].tool_calls", {"messages": [{"role": "assistant", "tool_calls": {}}]}, "must be an array"),
    wrong("tools[0]", {"tools": [5]}, "must be an object"),
    missing("tools[0].function", {"tools": [{"type": "function"}]}),
    missing("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
    wrong("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "must match ^[A-Za-z0-9_.-]{1,128}$"),
    unsupported("tools[0].input_schema", {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, "is Anthropic's name. Send the schema as `parameters`"),
    wrong("tools[0].type", {"tools": [{"type": "web_search"}]}, "must be function or custom"),
    wrong("tools[0].type", {"tools": [{"type": "namespace", "name": "n", "tools": []}]}, "must be function or custom"),
    wrong("tools[0].custom.name", {"tools": [{"type": "custom", "custom": {"name": "f!"}}]}, "must match ^[A-Za-z0-9_.-]{1,128}$"),
    wrong("tools[0].custom.format.type", {"tools": [{"type": "custom", "custom": {"name": "f", "format": {"type": "json"}}}]}, "must be one of 'text' or 'grammar'"),
    missing("messages[0].tool_calls[0].custom", {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]}),
    wrong("tool_choice", {"tools": [{"function": {"name": "f"}}], "tool_choice": {"function": {"name": "g"}}}, "names a tool that is not in `tools`"),
    wrong("tool_choice", {"tools": [{"function": {"name": "g"}}], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}}, "allows a tool that is not in `tools`"),
    wrong("functions", {"tools": [{"function": {"name": "f"}}], "functions": [{"name": "g"}]}, "cannot be used with `tools`"),
    wrong("function_call", {"functions": [{"name": "g"}], "function_call": "auto", "tool_choice": "auto"}, "cannot be used with `tool_choice`"),
    missing("response_format.type", {"response_format": {}}),
    wrong("response_format.type", {"response_format": {"type": "xml"}}, "must be 'text', 'json_object', 'json_schema', 'structural_tag' or the type of an XGrammar tag: any_text, const_string, grammar, or, qwen_xml_parameter, regex, sequence, tag, tags_with_separator, triggered_tags"),
    wrong("guided_regex", {"guided_json": {"type": "object"}, "guided_regex": "a"}, "`guided_json` and `guided_regex` exclude each other: an answer has one format. Leave one of them out"),
    wrong("guided_json", {"guided_json": "{"}, "is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    wrong("guided_json", {"guided_json": "[]"}, "must be a JSON schema: an object, or its text"),
    wrong("guided_json", {"guided_json": "[" * 5000}, "is not valid JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string"),
    wrong("structured_outputs.json", {"structured_outputs": {"json": '{"a":' * 200 + "1" + "}" * 200}}, "must not nest more than 100 levels"),
    wrong("guided_choice[0]", {"guided_choice": [1]}, "must be a string"),
    wrong("structured_outputs.choice", {"structured_outputs": {"choice": []}}, "must not be empty"),
    unsupported("structured_outputs.whitespace_pattern", {"structured_outputs": {"json_object": True, "whitespace_pattern": " *"}}, "is not supported: the answer has at most one space after a comma or colon"),
    unsupported("structured_outputs.disable_additional_properties", {"structured_outputs": {"json": {}, "disable_additional_properties": True}}, "is not supported: set additionalProperties to false in the schema"),
    wrong("structured_outputs.lark", {"structured_outputs": {"lark": "start: a"}}, "is not a known field"),
    missing("response_format.json_schema.schema", {"response_format": {"type": "json_schema"}}),
    wrong("response_format.json_schema.schema", {"response_format": {"type": "json_schema", "json_schema": {"schema": True}}}, "must be an object"),
    wrong("min_tokens", {"min_tokens": 9, "max_completion_tokens": 8}, "must be at most `max_completion_tokens`, which is 8"),
    wrong("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}, "and `add_generation_prompt` exclude each other: a prompt ends inside the last message or starts a new one"),
    wrong("documents", {"disable_chat_template": True, "documents": [{"text": "a"}]}, "needs a chat template, but `disable_chat_template` is true"),
    wrong("documents[0]", {"documents": ["a"]}, "must be an object"),
    wrong("metadata.k", {"metadata": {"k": "v" * 513}}, "must have at most 512 characters, but has 513. Send fewer, or ask the administrator to raise VINERY_MAX_METADATA_VALUE_CHARS"),
    missing("prediction.content", {"prediction": {"type": "content"}}),
    unsupported("modalities", {"modalities": ["text", "audio"]}, 'is not supported by this server: its models write text only. Leave it out, or set it to ["text"]'),
    wrong("vllm_xargs", {"logits_processors_args": {"a": 1}, "vllm_xargs": {"a": 1}}, "and `logits_processors_args` are two names of one parameter. Send one of them"),
    wrong("repetition_detection.min_count", {"repetition_detection": {"max_pattern_size": 4, "min_count": 1}}, "must be at least 2, because a pattern that occurs once is no repetition"),
    wrong("repetition_detection.min_pattern_size", {"repetition_detection": {"max_pattern_size": 4, "min_pattern_size": 5, "min_count": 2}}, "must be at most `max_pattern_size`, which is 4"),
    wrong("temperature", {"temperature": "0.5"}, "must be a number", trees=("v1",)),
    wrong("max_tokens", {"max_tokens": "8"}, "must be an integer", trees=("v1",)),
    wrong("prompt_logprobs", {"prompt_logprobs": 21}, "must be at most 20"),
    wrong("stop", {"stop": list("abcdefghijklmnopq")}, "must have at most 16 entries, but has 17. Send fewer, or ask the administrator to raise VINERY_MAX_STOPS_V3", trees=("v3",)),
    wrong("stop[1]", {"stop": ["a", 5]}, "must be a string"),
    wrong("best_of", {"n": 3, "best_of": 2}, "must be at least `n`, which is 3"),
    wrong("length_penalty", {"length_penalty": 2}, "is an option of beam search. Set `use_beam_search` to true, or leave it out"),
    wrong("n", {"use_beam_search": True, "n": 65}, "must be at most 64 for beam search"),
    wrong("assistant_confidence_threshold", {"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.5}, "`num_assistant_tokens` and `assistant_confidence_threshold` exclude each other. Send one of them"),
    wrong("top_logprobs", {"logprobs": True, "top_logprobs": 21}, "must be at most 20"),
    wrong("logprob_token_ids", {"logprob_token_ids": [5]}, "selects log-probabilities, but the request asks for none. Send `logprobs` too"),
    wrong("messages[0].role", {"messages": [{"role": 5, "content": "a"}]}, _ROLES),
    wrong("messages[0].content", {"messages": [{"role": "user", "content": True}]}, _CONTENT),
    wrong("messages[0].content", {"messages": [{"role": "user", "content": {}}]}, _CONTENT),
    wrong("messages[0].content[0]", {"messages": [{"role": "user", "content": ["a"]}]}, "must be an object"),
    missing("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "must have an `image_url`"),
    missing("messages[0].content[0].image_url.url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
    wrong("messages[0].content[0].image_url.url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5}}]}]}, "must be a string"),
    wrong("messages[0].content[0].image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": ""}]}]}, "must not be empty: send a data URL or a URL"),
    wrong("messages[0].content[0].image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,!aaa"}]}]}, "must have base64 of letters, digits, `+`, `/`, `-` and `_`, with `=` at its end alone"),
    wrong("messages[0].content[0].image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png"}]}]}, "must begin like `data:image/png;base64,`, before the data"),
    wrong("messages[0].content[0].image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:,"}]}]}, "must not be empty"),
    wrong("messages[0].content[0].image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "/pictures/a.png"}]}]}, "must be an http or https URL, a file:// URL or a data URL. Only /v3 takes paths", trees=("v1",)),
    wrong("messages[0].content[0].image_url", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "file://other/a.png"}]}]}, "must be the URL of a file of this server: file:///folder/name"),
    wrong("messages[0].content[0].image_url.detail", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.b/c", "detail": "best"}}]}]}, "must be one of 'auto', 'low', 'high' or 'original'"),
    missing("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "video_url"}]}]}, "must have a `video_url`"),
    missing("messages[0].content[0].file", {"messages": [{"role": "user", "content": [{"type": "file"}]}]}),
    missing("messages[0].content[0].file", {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, "must have `file_data`"),
    unsupported("messages[0].content[0].file.file_id", {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]}, "names a stored file, but this server stores none: send its contents as `file_data`"),
    wrong("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "holds audio input, which no model of this server takes; send text"),
    wrong("messages[0].tool_calls[0]", {"messages": [{"role": "assistant", "tool_calls": ["a"]}]}, "must be an object"),
    wrong("messages[0].tool_call_id", {"messages": [{"role": "tool", "tool_call_id": 5, "content": "a"}]}, "must be a string"),
    wrong("messages[0].name", {"messages": [{"role": "user", "name": 5, "content": "a"}]}, "must be a string"),
    wrong("messages[0].reasoning_content", {"messages": [{"role": "assistant", "reasoning_content": 5}]}, "must be a string"),
    wrong("tools[0].function", {"tools": [{"type": "function", "function": "f"}]}, "must be an object"),
    wrong("tools[0].function.parameters", {"tools": [{"function": {"name": "f", "parameters": "x"}}]}, "must be an object"),
)  # fmt: skip

_COMPLETIONS: Sequence[Mistake] = (
    missing("response_format.json_schema.schema", {"response_format": {"type": "json_schema"}}),
    wrong("structured_outputs.choice", {"response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a"]}}, "`response_format` and `structured_outputs.choice` exclude each other: an answer has one format. Leave one of them out"),
    missing("prompt", {"prompt": None}),
    wrong("prompt", {"prompt": ["a"] * 99, "n": 99}, "asks for more than 2048 answers: prompts times `n`"),
    wrong("best_of", {"best_of": 2, "stream": True}, "above `n` cannot be streamed, because the best answers are known only at the end. Set `stream` to false", trees=("v1",)),
    wrong("prompt_logprobs", {"prompt": "a", "stream": True, "prompt_logprobs": 1}, "are not available when `stream` is true"),
)  # fmt: skip

_RESPONSES: Sequence[Mistake] = (
    wrong("tools[0].parameters", {"tools": [{"type": "function", "name": "f", "parameters": []}]}, "must be an object"),
    missing("tools[0].tools[0].function", {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}),
    missing("tools[0].format.syntax", {"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar"}}]}),
    wrong("tools[0].format.syntax", {"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "gbnf", "definition": "a"}}]}, "must be one of 'lark' or 'regex'"),
    wrong("tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [{"type": "function", "name": "f"}]}}, "must have a `mode` that is auto or required"),
    wrong("tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}, 5]}}, "must name a tool in `tools[1]`"),
    wrong("tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom"}]}}, "must name a tool in `tools[0]`"),
    wrong("tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}}, "must name at least one function or custom tool in `tools`"),
    wrong("reasoning.effort", {"reasoning": {"effort": 3}}, "must be one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'"),
    wrong("structured_outputs.regex", {"structured_outputs": {"json": {}, "regex": "a"}}, "`structured_outputs.json` and `structured_outputs.regex` exclude each other: an answer has one format. Leave one of them out"),
    missing("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "n"}}}),
    unsupported("response_format", {"response_format": {"type": "json_object"}}, "belongs to chat completions. Use `text.format` instead", trees=("v1",)),
    missing("input", {"input": None}),
    wrong("input[0]", {"input": [5]}, "must be an object"),
    missing("input[0]", {"input": [{}]}, "must have a `role` or a known `type`"),
    missing("input[0].role", {"input": [{"type": "message"}]}),
    missing("input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "must have a `text`"),
    unsupported("input[0]", {"input": [{"type": "item_reference", "id": "x"}]}, "is an item_reference, but this server stores no items: set `store: false` in the client, or send the item itself"),
    unsupported("input[0]", {"input": [{"id": "x"}]}, "is an item_reference, but this server stores no items: set `store: false` in the client, or send the item itself"),
    unsupported("input[1]", {"input": [{"role": "user", "content": "a"}, {"type": "compaction"}]}, "is of type compaction, which only the server that created it can read: send the items themselves"),
    unsupported("input[0]", {"input": [{"type": "image_generation_call", "id": "x", "result": "aGk="}]}, "is of type image_generation_call, which holds a generated image: send it as an input_image part of a message"),
    unsupported("input[0]", {"input": [{"type": "mcp_list_tools", "id": "x", "tools": []}]}, "is of type mcp_list_tools, which is not supported: send messages, reasoning, and calls of functions and tools with their outputs"),
    wrong("input[0].encrypted_content", {"input": [{"type": "reasoning", "encrypted_content": "vinery.1.?"}]}, "was changed: send it back unchanged"),
    missing("input[0].input", {"input": [{"type": "custom_tool_call", "call_id": "a", "name": "f"}]}),
    wrong("input[0].output", {"input": [{"type": "shell_call_output", "call_id": "a", "output": "x"}]}, "must be an array"),
    wrong("input[0].output[0].image_url", {"input": [{"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image", "image_url": "data:"}]}]}, "must begin like `data:image/png;base64,`, before the data"),
    missing("input[0]", {"input": [{"type": "function_call", "name": "f"}]}, "must have a `call_id`"),
    wrong("input[0].arguments", {"input": [{"type": "function_call", "call_id": "a", "arguments": 5, "name": "f"}]}, "must be a string"),
    missing("input[0].call_id", {"input": [{"type": "function_call_output", "output": "4"}]}),
    missing("input[0].output", {"input": [{"type": "function_call_output", "call_id": "a"}]}),
    wrong("include[0]", {"include": ["everything"]}, "must be one of 'reasoning.encrypted_content', 'message.output_text.logprobs', 'message.input_image.image_url', 'file_search_call.results', 'web_search_call.results', 'web_search_call.action.sources', 'computer_call_output.output.image_url' or 'code_interpreter_call.outputs'"),
    unsupported("reasoning.mode", {"reasoning": {"mode": "pro"}}, "must be standard: the served models have one reasoning mode"),
    wrong("reasoning.summary", {"reasoning": {"summary": "long"}}, "must be one of 'auto', 'concise' or 'detailed'"),
    wrong("text.verbosity", {"text": {"verbosity": "loud"}}, "must be one of 'low', 'medium' or 'high'"),
    wrong("prompt_cache_options.ttl", {"prompt_cache_options": {"ttl": "5m"}}, "must be one of '30m' or '12h'"),
    unsupported("prompt_cache_options.prewarm", {"prompt_cache_options": {"prewarm": True}}, "must be false: to fill the cache, send a request for one token"),
    unsupported("prompt_cache_options.comparison_response_id", {"prompt_cache_options": {"comparison_response_id": "resp_1"}}, "names a stored response, but this server stores none. Leave it out"),
    wrong("metadata.k", {"metadata": {"k": 5}}, "must be a string"),
    wrong("metadata.kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", {"metadata": {"k" * 65: "v"}}, "must have at most 64 characters, but has 65. Send fewer, or ask the administrator to raise VINERY_MAX_METADATA_KEY_CHARS"),
    wrong("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": "yes"}}, "must be true or false"),
    wrong("tool_choice", {"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "g"}}, "names a tool that is not in `tools`"),
    missing("input[0].content", {"input": [{"role": "user"}]}),
    wrong("input[0].content", {"input": [{"role": "user", "content": 5}]}, _CONTENT),
    wrong("input[0].content[0]", {"input": [{"role": "user", "content": ["a"]}]}, "must be an object"),
    missing("input[0].content[0].type", {"input": [{"role": "user", "content": [{"text": "a"}]}]}),
    unsupported("input[0].content[0].file_id", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "names a stored file, but this server stores none: send its contents as `file_data`"),
    wrong("input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://a.b/c", "file_data": "YQ=="}]}]}, "has `file_data` and `file_url`: send one of them"),
    unsupported("input[0].content[0].file_id", {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]}, "names a stored file, but this server stores none: send the file in a data URL, or its URL"),
    wrong("input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "holds audio input, which no model of this server takes; send text"),
    missing("input[0].name", {"input": [{"type": "function_call", "call_id": "a", "arguments": "{}"}]}),
    wrong("input[0].output", {"input": [{"type": "function_call_output", "call_id": "a", "output": 5}]}, _CONTENT),
    wrong("reasoning.effort", {"reasoning": {"effort": "extreme"}}, "must be one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'"),
)  # fmt: skip

_BLOCKS: Final = "must be a string or an array of content blocks"

_MESSAGES: Sequence[Mistake] = (
    missing("max_tokens", {"max_tokens": None}),
    missing("messages", {"messages": None}),
    wrong("messages", {"messages": []}, "must not be empty"),
    wrong("messages[0].role", {"messages": [{"role": "tool", "content": "a"}]}, "must be one of 'user', 'assistant' or 'system'"),
    missing("messages[0].content", {"messages": [{"role": "user"}]}),
    wrong("messages[0].content", {"messages": [{"role": "user", "content": 5}]}, _BLOCKS),
    missing("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "must have a `type`"),
    wrong("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "poem"}]}]}, "must have one of these types: text, image, document, search_result, tool_use, tool_result, thinking, redacted_thinking"),
    unsupported("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "is of type server_tool_use, which belongs to a tool that Anthropic runs, and this server runs none: send what it holds as text"),
    unsupported("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "x"}]}]}, "is of type container_upload, which names a stored file, and this server stores none"),
    unsupported("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "compaction", "content": "a"}]}]}, "is of type compaction, which Anthropic's server writes when it shortens a conversation: send the messages themselves"),
    wrong("messages[0].content[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "thinking"}]}]}]}, "must have one of these types: text, image, document, search_result"),
    missing("messages[0].content[0].source", {"messages": [{"role": "user", "content": [{"type": "search_result", "title": "a", "content": []}]}]}),
    unsupported("messages[0].content[0].transformations.oversized_image", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://a.b/c"}, "transformations": {"oversized_image": "error"}}]}]}, "must be downsize: a picture that is too large is scaled down"),
    unsupported("messages[0].clear_at", {"messages": [{"role": "system", "content": "a", "clear_at": "next_user_message"}]}, "must be never: this server keeps no conversations. Leave the message out of later requests"),
    unsupported("messages[0].output_config", {"messages": [{"role": "system", "content": "a", "output_config": {"effort": "low"}}]}, "is not supported by this server: an answer has the `output_config` of its request"),
    unsupported("output_config.task_budget", {"output_config": {"task_budget": {"type": "tokens", "total": 5}}}, "is not supported by this server: its models do not know budgets of tasks. Use `max_tokens`"),
    unsupported("tools[0].type", {"tools": [{"type": "function", "function": {"name": "f"}}]}, "is OpenAI's: send the function's `name` and `description`, and its parameters as `input_schema`"),
    unsupported("tools[0].allowed_callers", {"tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["code_execution_20260120"]}]}, "must have direct: this server runs no code that could call the tool"),
    wrong("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]}, "is of type tool_use, which has no meaning in a message of the user"),
    wrong("messages[0].content[0].input", {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]}]}, "must be an object"),
    missing("messages[0].content[0].tool_use_id", {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
    unsupported("messages[0].content[0].source", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "x"}}]}]}, "names a stored file, but this server stores none: send its contents as `base64`, or its `url`"),
    wrong("messages[0].content[0].source.type", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "path"}}]}]}, "must be one of 'base64' or 'url'"),
    wrong("messages[0].content[0].source.data", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "!aaa"}}]}]}, "must have base64 of letters, digits, `+`, `/`, `-` and `_`, with `=` at its end alone"),
    unsupported("messages[0].content[0].citations.enabled", {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "a"}, "citations": {"enabled": True}}]}]}, "must be false: answers have no citations"),
    wrong("stop_sequences[0]", {"stop_sequences": [""]}, "must not be empty"),
    unsupported("tools[0].type", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "is web_search_20250305, a tool of Anthropic's, but this server has none: send a tool with `name`, `description` and `input_schema`"),
    missing("tools[0].input_schema", {"tools": [{"name": "f"}]}),
    wrong("tool_choice", {"tool_choice": {"type": "any"}}, "asks for a tool call, but `tools` has no tool that the model can call"),
    missing("tool_choice", {"tool_choice": {"type": "tool"}}, "must have the `name` of a tool"),
    wrong("thinking.type", {"thinking": {"type": "between_tools"}}, "must be one of 'enabled', 'adaptive' or 'disabled'"),
    unsupported("context_management", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "asks the server to shorten the conversation, but this server sends the model all messages of a request: shorten them before you send them"),
    wrong("output_format.schema", {"output_config": {"format": {"type": "json_schema", "schema": {}}}, "output_format": {"type": "json_schema", "schema": {}}}, "`output_config.format.schema` and `output_format.schema` exclude each other: an answer has one format. Leave one of them out"),
)  # fmt: skip

_CONTRADICTIONS: Sequence[Mistake] = (
    wrong("truncate", {"truncate": False, "truncate_prompt_tokens": 3}, "contradicts `truncate_prompt_tokens`: send one of them"),
    wrong("truncate", {"truncate": "START", "truncation_side": "right"}, "names another side than the other parameter"),
    wrong("truncate", {"truncate": "MIDDLE"}, "must be true, false, 'NONE', 'START' or 'END'"),
    wrong("truncate", {"truncate": 5}, "must be true, false, 'NONE', 'START' or 'END'"),
)  # fmt: skip

_EMBEDDINGS: Sequence[Mistake] = (missing("input", {"input": None}), *_CONTRADICTIONS)

_RERANK: Sequence[Mistake] = (
    missing("query", {"query": None}),
    missing("documents", {"documents": None}),
    *_CONTRADICTIONS,
)

_SCORE: Sequence[Mistake] = (
    missing("text_1", {"text_1": None}),
    missing("text_2", {"text_2": None}),
    missing("text_1", {"text_1": None, "text_2": None}),
    missing("documents", {"text_1": None, "text_2": None, "queries": "a"}),
    wrong("text_2", {"text_1": ["a", "b"], "text_2": ["c"]}, "has 1 texts beside 2: send as many, or one `text_1`"),
    wrong("queries", {"queries": "a"}, "cannot go with `text_1`: send one of them"),
    *_CONTRADICTIONS,
)  # fmt: skip

MISTAKES: Final[Mapping[Endpoint, Sequence[Mistake]]] = {
    Endpoint.CHAT: _CHAT,
    Endpoint.COMPLETIONS: _COMPLETIONS,
    Endpoint.RESPONSES: _RESPONSES,
    Endpoint.MESSAGES: _MESSAGES,
    Endpoint.EMBEDDINGS: _EMBEDDINGS,
    Endpoint.RERANK: _RERANK,
    Endpoint.SCORE: _SCORE,
}

_EVERY: Final = GENERATION_ENDPOINTS
_OPENAI: Final = (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES)
_TURNS: Final = (Endpoint.MESSAGES,)
_CHATS: Final = (Endpoint.CHAT,)
_TEXTS: Final = (Endpoint.COMPLETIONS,)
_ITEMS: Final = (Endpoint.RESPONSES,)

# Bodies that other servers refuse or misread, and what they do here.
ACCEPTED: Sequence[tuple[Sequence[Endpoint], Mapping[str, Any], str]] = (
    (_EVERY, {"stream": None}, "Null is absent, in every field."),
    (_OPENAI, {"max_tokens": None}, "Only the limits of the endpoint and the model."),
    (_OPENAI, {"max_tokens": -1}, "Only the limits of the model, as for clients of LM Studio."),
    (_EVERY, {"max_tokens": 8.0, "top_k": 40.0}, "Integers, as in JSON."),
    (_EVERY, {"stop": []}, "No stop string."),
    (_EVERY, {"stop": ""}, "No stop string."),
    (_EVERY, {"user": {"id": "alice", "name": "Alice"}}, "The user alice."),
    (
        _EVERY,
        {"unknown_field": {"a": 1}},
        "Unknown fields are ignored; the header `x-vinery-ignored` names them.",
    ),
    (
        _EVERY,
        {"stream": True, "stream_options": {"include_usage": True, "unknown_field": 1}},
        "Also for Responses, whose last event always has the usage.",
    ),
    (
        _OPENAI,
        {"stream": True, "stop": "a", "include_stop_str_in_output": False},
        "Streams leave the stop string out, too.",
    ),
    (_OPENAI, {"n": 2}, "Two sampled answers, without `best_of`."),
    (_OPENAI, {"n": 2, "stream": True}, "Both answers are streamed."),
    (_EVERY, {"seed": -1}, "Negative seeds are mapped to the engine's range."),
    (_EVERY, {"top_k": 0}, "All tokens, like -1."),
    (_EVERY, {"top_p": 0}, "Only the most likely token."),
    (_EVERY, {"min_p": 1}, "Only the most likely token."),
    (_EVERY, {"max_completion_tokens": 4294967295}, "As many tokens as fit into the context."),
    (_CHATS, {"stream": True, "logprobs": True, "top_logprobs": 20}, "Streamed with the text."),
    (_TEXTS, {"stream": True, "logprobs": 20}, "Streamed with the text."),
    (_CHATS, {"tools": [{"function": {"name": "f"}}]}, "A function needs no `type`."),
    (_TEXTS, {"logprobs": 0}, "The log-probability of each token, without alternatives."),
    (_TEXTS, {"prompt": ["a", "b"]}, "One answer to each."),
    (_TEXTS, {"prompt": [1, 2]}, "Token ids."),
    (_TEXTS, {"max_tokens": 0, "echo": True}, "Only the prompt."),
    (_CHATS, {"messages": [{"role": "user", "content": []}]}, "An empty message."),
    (_CHATS, {"messages": [{"role": "assistant", "content": None}]}, "An empty answer."),
    (
        _TURNS,
        {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
        "One turn.",
    ),
    (
        _TURNS,
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        "The answer continues the last turn.",
    ),
    (
        _TURNS,
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        "Reasoning with this effort.",
    ),
    (_ITEMS, {"max_tokens": 5}, "The same as `max_output_tokens`."),
    (_ITEMS, {"reasoning": {"effort": "minimal"}}, "All seven efforts."),
    (_ITEMS, {"instructions": "Be brief."}, "A system message."),
    (_ITEMS, {"text": {"format": {"type": "json_object"}}}, "Structured output."),
    (_ITEMS, {"truncation": "auto", "metadata": {"k": "v"}, "include": []}, "Implemented."),
)
