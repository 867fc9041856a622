"""What only `chat/completions` is asked wrongly."""

from __future__ import annotations

from collections.abc import Sequence

from docs.refusals.row import (
    CHOICES,
    CONTENT,
    EFFORTS,
    INVALID,
    NAMED_F,
    NO_AUDIO,
    NO_IMAGE,
    ROLES,
    Row,
    missing,
    unsupported,
    wrong,
)

ROWS: Sequence[Row] = (
    wrong("stop[1]", {"stop": ["a", ""]}, "must not be empty"),
    wrong("stop[0]", {"stop": [1]}, "must be a string"),
    wrong("stop", {"stop": list("abcde")}, "must have at most 4 entries", trees=("v1",)),
    wrong(
        "stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": 1}},
        "must be true or false",
    ),
    # Messages
    missing("messages", {"messages": None}),
    wrong("messages", {"messages": []}, "must not be empty"),
    wrong("messages", {"messages": "Hi"}, "must be an array"),
    wrong("messages[0]", {"messages": ["a", 2]}, "must be an object"),
    wrong("messages[1]", {"messages": [1, "a"]}, "must be an integer"),
    wrong("messages[0]", {"messages": [-1]}, "must be at least 0"),
    wrong("prompt_token_ids[0]", {"prompt_token_ids": [2**31]}, "must be at most 2147483647"),
    missing("messages[0].role", {"messages": [{"content": "a"}]}),
    wrong("messages[0].role", {"messages": [{"role": "bot", "content": "a"}]}, ROLES),
    missing("messages[0].content", {"messages": [{"role": "user"}]}),
    missing("messages[0].content", {"messages": [{"role": "user", "content": None}]}),
    wrong("messages[0].content", {"messages": [{"role": "user", "content": 5}]}, CONTENT),
    missing(
        "messages[0].content[0].type", {"messages": [{"role": "user", "content": [{"text": "a"}]}]},
    ),
    missing(
        "messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "must have a `text`",
    ),
    wrong(
        "messages[0].content[0].text",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
        "must be a string",
    ),
    wrong(
        "messages[0].content[0]",
        {"messages": [{"role": "user", "content": [{"type": "poem", "text": "a"}]}]},
        "must have one of these types: text, input_text, output_text, refusal",
    ),
    missing("messages[0].tool_call_id", {"messages": [{"role": "tool", "content": "4"}]}),
    missing(
        "messages[0].tool_calls[0].function",
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
    ),
    wrong(
        "messages[0].tool_calls", {"messages": [{"role": "assistant", "tool_calls": {}}]},
        "must be an array",
    ),
    # Tools
    wrong("tools", {"tools": {}}, "must be an array"),
    wrong("tools[0]", {"tools": [5]}, "must be an object"),
    missing("tools[0].function", {"tools": [{"type": "function"}]}),
    missing("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
    wrong(
        "tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "must match ^[A-Za-z0-9_.-]{1,128}$",
    ),
    wrong("tools[0].type", {"tools": [{"type": "web_search"}]}, "must be function or custom"),
    wrong(
        "tools[0].type", {"tools": [{"type": "namespace", "name": "n", "tools": []}]},
        "must be function or custom",
    ),
    wrong(
        "tools[0].custom.name", {"tools": [{"type": "custom", "custom": {"name": "f!"}}]},
        "must match ^[A-Za-z0-9_.-]{1,128}$",
    ),
    wrong(
        "tools[0].custom.format.type",
        {"tools": [{"type": "custom", "custom": {"name": "f", "format": {"type": "json"}}}]},
        "must be one of 'text' or 'grammar'",
    ),
    missing(
        "messages[0].tool_calls[0].custom",
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
    ),
    wrong("tool_choice", {"tool_choice": "any"}, CHOICES),
    wrong("tool_choice", {"tool_choice": {"type": "function"}}, CHOICES),
    wrong(
        "tool_choice", {"tool_choice": "required"},
        "asks for a tool call, but `tools` holds none that could be called",
    ),
    wrong(
        "tool_choice",
        {"tools": [{"function": {"name": "f"}}], "tool_choice": {"function": {"name": "g"}}},
        "names a tool that is not in `tools`",
    ),
    wrong(
        "tool_choice", {"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
        "must have a `allowed_tools.mode` that is auto or required",
    ),
    wrong(
        "tool_choice",
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}},
        "must have `allowed_tools.tools`, an array that names at least one tool",
    ),
    wrong(
        "tool_choice",
        {
            "tools": [{"function": {"name": "g"}}],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED_F]},
        },
        "allows a tool that is not in `tools`",
    ),
    wrong(
        "tool_choice", {"tool_choice": {"type": "custom", "custom": {"name": "f"}}},
        "names a tool that is not in `tools`",
    ),
    wrong(
        "functions", {"tools": [{"function": {"name": "f"}}], "functions": [{"name": "g"}]},
        "cannot be used with `tools`",
    ),
    wrong(
        "function_call",
        {"functions": [{"name": "g"}], "function_call": "auto", "tool_choice": "auto"},
        "cannot be used with `tool_choice`",
    ),
    # Templates and effort
    wrong("chat_template_kwargs", {"chat_template_kwargs": []}, "must be an object"),
    wrong(
        "chat_template_kwargs", {"chat_template_kwargs": {"messages": []}},
        "must not set `messages`: the server sets it itself",
    ),
    wrong(
        "chat_template_kwargs", {"chat_template_kwargs": {"eos_token": "</s>"}},
        "must not set `eos_token`: the server sets it itself",
    ),
    wrong("reasoning_effort", {"reasoning_effort": "extreme"}, EFFORTS),
    # Formats
    missing("response_format.type", {"response_format": {}}),
    wrong(
        "response_format.type", {"response_format": {"type": "xml"}},
        "must be 'text', 'json_object', 'json_schema', 'structural_tag' or the type of an XGrammar tag: any_text, const_string, grammar, or, qwen_xml_parameter, regex, sequence, tag, tags_with_separator, triggered_tags",
    ),
    Row(
        "guided_regex", {"guided_json": {"type": "object"}, "guided_regex": "a"}, INVALID,
        "`guided_json` and `guided_regex` exclude each other: an answer has one form. Leave one of them out.",
    ),
    wrong(
        "guided_json", {"guided_json": "{"},
        "is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    wrong("guided_json", {"guided_json": "[]"}, "must be a JSON schema: an object, or its text"),
    wrong(
        "guided_json", {"guided_json": "[" * 5000},
        "is not valid JSON: maximum recursion depth exceeded while decoding a JSON array from a unicode string",
    ),
    wrong(
        "structured_outputs.json",
        {"structured_outputs": {"json": '{"a":' * 200 + "1" + "}" * 200}},
        "must not nest more than 100 levels",
    ),
    wrong("guided_choice[0]", {"guided_choice": [1]}, "must be a string"),
    wrong("structured_outputs.choice", {"structured_outputs": {"choice": []}}, "must not be empty"),
    unsupported(
        "structured_outputs.whitespace_pattern",
        {"structured_outputs": {"json_object": True, "whitespace_pattern": " *"}},
        "is not supported: there is at most one blank after a comma or colon",
    ),
    unsupported(
        "structured_outputs.disable_additional_properties",
        {"structured_outputs": {"json": {}, "disable_additional_properties": True}},
        "is not supported: say additionalProperties false in the schema",
    ),
    wrong(
        "structured_outputs.lark", {"structured_outputs": {"lark": "start: a"}},
        "is not known here",
    ),
    missing("response_format.json_schema.schema", {"response_format": {"type": "json_schema"}}),
    wrong(
        "response_format.json_schema.schema",
        {"response_format": {"type": "json_schema", "json_schema": {"schema": True}}},
        "must be an object",
    ),
    # Prompts
    wrong(
        "min_tokens", {"min_tokens": 9, "max_completion_tokens": 8},
        "must be at most `max_completion_tokens`, which is 8",
    ),
    wrong(
        "continue_final_message", {"continue_final_message": True, "add_generation_prompt": True},
        "and `add_generation_prompt` exclude each other: a prompt ends inside the last message or begins a new one",
    ),
    wrong(
        "documents", {"disable_chat_template": True, "documents": [{"text": "a"}]},
        "needs a chat template, but `disable_chat_template` is true",
    ),
    wrong("documents[0]", {"documents": ["a"]}, "must be an object"),
    wrong("chat_template", {"chat_template": ""}, "must not be empty"),
    wrong("truncation_side", {"truncation_side": "middle"}, "must be one of 'left' or 'right'"),
    # Labels
    wrong("metadata.k", {"metadata": {"k": "v" * 513}}, "must have at most 512 characters"),
    wrong(
        "safety_identifier", {"safety_identifier": "s" * 129}, "must have at most 128 characters",
    ),
    wrong(
        "prompt_cache_retention", {"prompt_cache_retention": "1h"},
        "must be one of 'in_memory', 'in-memory' or '24h'",
    ),
    wrong("verbosity", {"verbosity": "loud"}, "must be one of 'low', 'medium' or 'high'"),
    missing("prediction.content", {"prediction": {"type": "content"}}),
    # What would change the answer, with the reason why it cannot
    unsupported(
        "audio", {"audio": {"voice": "a"}},
        "is not supported by this server: its models write text only. Leave it out",
    ),
    unsupported(
        "modalities", {"modalities": ["text", "audio"]},
        'is not supported by this server: its models write text only. Leave it out, or set it to ["text"]',
    ),
    unsupported(
        "web_search_options", {"web_search_options": {}},
        "is not supported by this server: it searches nothing; give the model a function that does. Leave it out",
    ),
    unsupported(
        "moderation", {"moderation": {"model": "m"}},
        "is not supported by this server: it has no moderation model. Leave it out",
    ),
    wrong(
        "vllm_xargs", {"logits_processors_args": {"a": 1}, "vllm_xargs": {"a": 1}},
        "and `logits_processors_args` are two names for the same. Send one of them",
    ),
    wrong(
        "repetition_detection.min_count",
        {"repetition_detection": {"max_pattern_size": 4, "min_count": 1}},
        "must be at least 2: what stands there once is no repetition",
    ),
    wrong(
        "repetition_detection.min_pattern_size",
        {"repetition_detection": {"max_pattern_size": 4, "min_pattern_size": 5, "min_count": 2}},
        "must be at most `max_pattern_size`, which is 4",
    ),
    # What else OpenVINO Model Server is asked wrongly
    wrong("max_tokens", {"max_tokens": 0}, "must be at least 1"),
    wrong("max_tokens", {"max_tokens": -1}, "must be at least 1"),
    wrong("prompt_logprobs", {"prompt_logprobs": 21}, "must be at most 20"),
    wrong(
        "stop", {"stop": list("abcdefghijklmnopq")}, "must have at most 16 entries",
        trees=("v3",),
    ),
    wrong("stop[1]", {"stop": ["a", 5]}, "must be a string"),
    wrong("best_of", {"n": 3, "best_of": 2}, "must be at least `n`, which is 3"),
    wrong(
        "length_penalty", {"length_penalty": 2},
        "belongs to a search by beams. Set `use_beam_search` to true, or leave it out",
    ),
    wrong("n", {"use_beam_search": True, "n": 65}, "must be at most 64 for a search by beams"),
    Row(
        "assistant_confidence_threshold",
        {"num_assistant_tokens": 5, "assistant_confidence_threshold": 0.5},
        INVALID,
        "`num_assistant_tokens` and `assistant_confidence_threshold` exclude each other. Send one of them.",
    ),
    wrong("logprobs", {"logprobs": 1}, "must be true or false"),
    wrong("top_logprobs", {"top_logprobs": 5}, "needs `logprobs` to be true"),
    wrong("top_logprobs", {"logprobs": True, "top_logprobs": 21}, "must be at most 20"),
    wrong(
        "logprob_token_ids", {"logprob_token_ids": [5]},
        "says which log-probabilities are returned, but none were asked for. Ask for `logprobs` too",
    ),
    wrong("messages[0].role", {"messages": [{"role": 5, "content": "a"}]}, ROLES),
    wrong("messages[0].content", {"messages": [{"role": "user", "content": True}]}, CONTENT),
    wrong("messages[0].content", {"messages": [{"role": "user", "content": {}}]}, CONTENT),
    wrong(
        "messages[0].content[0]", {"messages": [{"role": "user", "content": ["a"]}]},
        "must be an object",
    ),
    wrong(
        "messages[0].content[0]",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        NO_IMAGE,
    ),
    wrong(
        "messages[0].content[0]",
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        NO_AUDIO,
    ),
    wrong(
        "messages[0].tool_calls[0]", {"messages": [{"role": "assistant", "tool_calls": ["a"]}]},
        "must be an object",
    ),
    wrong(
        "messages[0].tool_call_id",
        {"messages": [{"role": "tool", "tool_call_id": 5, "content": "a"}]},
        "must be a string",
    ),
    wrong(
        "messages[0].name", {"messages": [{"role": "user", "name": 5, "content": "a"}]},
        "must be a string",
    ),
    wrong(
        "messages[0].reasoning_content",
        {"messages": [{"role": "assistant", "reasoning_content": 5}]},
        "must be a string",
    ),
    wrong(
        "tools[0].function", {"tools": [{"type": "function", "function": "f"}]},
        "must be an object",
    ),
    wrong(
        "tools[0].function.parameters", {"tools": [{"function": {"name": "f", "parameters": "x"}}]},
        "must be an object",
    ),
    wrong("tool_choice", {"tool_choice": 5}, CHOICES),
    unsupported(
        "chunk_frames", {"chunk_frames": 0},
        "is not supported by this server: its models write text only. Leave it out",
    ),
)  # fmt: skip
