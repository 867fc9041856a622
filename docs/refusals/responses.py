"""What only `responses` is asked wrongly."""

from __future__ import annotations

from collections.abc import Sequence

from docs.refusals.row import (
    CHOICES,
    CONTENT,
    EFFORTS,
    GBNF,
    INVALID,
    NAMED_F,
    NO_AUDIO,
    NO_IMAGE,
    Row,
    missing,
    unsupported,
    wrong,
)

ROWS: Sequence[Row] = (
    # Tools
    wrong(
        "tools[0].parameters", {"tools": [{"type": "function", "name": "f", "parameters": []}]},
        "must be an object",
    ),
    missing(
        "tools[0].tools[0].function",
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]},
    ),
    missing(
        "tools[0].format.syntax",
        {"tools": [{"type": "custom", "name": "f", "format": {"type": "grammar"}}]},
    ),
    wrong(
        "tools[0].format.syntax", {"tools": [{"type": "custom", "name": "f", "format": GBNF}]},
        "must be one of 'lark' or 'regex'",
    ),
    wrong(
        "tool_choice",
        {"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [NAMED_F]}},
        "must have a `mode` that is auto or required",
    ),
    wrong(
        "tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
        "must have `tools`, an array that names at least one tool",
    ),
    wrong(
        "tool_choice",
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED_F, 5]}},
        "must name a tool in `tools[1]`",
    ),
    wrong(
        "tool_choice",
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom"}]}},
        "must name a tool in `tools[0]`",
    ),
    wrong(
        "tool_choice",
        {"tool_choice": {
            "type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}],
        }},
        "must name at least one function or custom tool in `tools`",
    ),
    wrong("tool_choice", {"tool_choice": {"type": "web_search"}}, CHOICES),
    # Templates and effort
    wrong("reasoning.effort", {"reasoning": {"effort": 3}}, EFFORTS),
    wrong("reasoning", {"reasoning": "low"}, "must be an object"),
    # Formats
    Row(
        "structured_outputs.regex", {"structured_outputs": {"json": {}, "regex": "a"}}, INVALID,
        "`structured_outputs.json` and `structured_outputs.regex` exclude each other: an answer has one form. Leave one of them out.",
    ),
    missing("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "n"}}}),
    unsupported(
        "response_format", {"response_format": {"type": "json_object"}},
        "belongs to chat completions. Use `text.format` instead",
        trees=("v1",),
    ),
    # Input items
    missing("input", {"input": None}),
    wrong("input", {"input": ""}, "must not be empty"),
    wrong("input", {"input": []}, "must not be empty"),
    wrong("input", {"input": 5}, "must be a string or an array of items"),
    wrong("input[0]", {"input": [5]}, "must be an object"),
    missing("input[0]", {"input": [{}]}, "must have a `role`, or a `type` that says what it is"),
    missing("input[0].role", {"input": [{"type": "message"}]}),
    missing(
        "input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "must have a `text`",
    ),
    unsupported(
        "input[0]", {"input": [{"type": "item_reference", "id": "x"}]},
        "is an item_reference, but no items are stored: send the item itself",
    ),
    unsupported(
        "input[0]", {"input": [{"id": "x"}]},
        "is an item_reference, but no items are stored: send the item itself",
    ),
    unsupported(
        "input[1]", {"input": [{"role": "user", "content": "a"}, {"type": "compaction"}]},
        "is of type compaction, which can be read only by the server that made it: send the items themselves",
    ),
    unsupported(
        "input[0]", {"input": [{"type": "image_generation_call", "id": "x", "result": "aGk="}]},
        "is of type image_generation_call, which holds an image, but this model takes text only",
    ),
    unsupported(
        "input[0]", {"input": [{"type": "mcp_list_tools", "id": "x", "tools": []}]},
        "is of type mcp_list_tools, which is not supported: send messages, reasoning, and calls of functions and tools with their outputs",
    ),
    wrong(
        "input[0].encrypted_content",
        {"input": [{"type": "reasoning", "encrypted_content": "vinery.1.?"}]},
        "was changed on its way: send it back as it came",
    ),
    missing(
        "input[0].input", {"input": [{"type": "custom_tool_call", "call_id": "a", "name": "f"}]},
    ),
    wrong(
        "input[0].output",
        {"input": [{"type": "shell_call_output", "call_id": "a", "output": "x"}]},
        "must be an array",
    ),
    wrong(
        "input[0].output[0]",
        {"input": [{
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_image", "image_url": "data:"}],
        }]},
        NO_IMAGE,
    ),
    missing(
        "input[0]", {"input": [{"type": "function_call", "name": "f"}]}, "must have a `call_id`",
    ),
    wrong(
        "input[0].arguments",
        {"input": [{"type": "function_call", "call_id": "a", "arguments": 5, "name": "f"}]},
        "must be a string",
    ),
    missing("input[0].call_id", {"input": [{"type": "function_call_output", "output": "4"}]}),
    missing("input[0].output", {"input": [{"type": "function_call_output", "call_id": "a"}]}),
    # The rest of responses
    wrong("instructions", {"instructions": ["a"]}, "must be a string"),
    wrong(
        "include[0]", {"include": ["everything"]},
        "must be one of 'reasoning.encrypted_content', 'message.output_text.logprobs', 'message.input_image.image_url', 'file_search_call.results', 'web_search_call.results', 'web_search_call.action.sources', 'computer_call_output.output.image_url' or 'code_interpreter_call.outputs'",
    ),
    unsupported(
        "reasoning.mode", {"reasoning": {"mode": "pro"}},
        "must be standard: a model has one way to think here",
    ),
    wrong(
        "reasoning.summary", {"reasoning": {"summary": "long"}},
        "must be one of 'auto', 'concise' or 'detailed'",
    ),
    wrong(
        "text.verbosity", {"text": {"verbosity": "loud"}},
        "must be one of 'low', 'medium' or 'high'",
    ),
    wrong("truncation", {"truncation": "middle"}, "must be one of 'auto' or 'disabled'"),
    wrong("max_tool_calls", {"max_tool_calls": 0}, "must be at least 1"),
    wrong("top_logprobs", {"top_logprobs": 21}, "must be at most 20"),
    unsupported(
        "prompt_logprobs", {"prompt_logprobs": 1},
        "is not supported by this server: this endpoint's answer has no place for them; use `completions`. Leave it out",
    ),
    # Labels
    wrong(
        "prompt_cache_options.ttl", {"prompt_cache_options": {"ttl": "5m"}},
        "must be one of '30m' or '12h'",
    ),
    unsupported(
        "prompt_cache_options.prewarm", {"prompt_cache_options": {"prewarm": True}},
        "must be false: to fill the cache, ask for an answer of one token",
    ),
    unsupported(
        "prompt_cache_options.comparison_response_id",
        {"prompt_cache_options": {"comparison_response_id": "resp_1"}},
        "names a response to compare with, but none are stored. Leave it out",
    ),
    # What would change the answer, with the reason why it cannot
    unsupported(
        "conversation", {"conversation": "conv_1"},
        "is not supported by this server: no conversations are stored; send all of it in `input`. Leave it out",
    ),
    wrong(
        "metadata", {"metadata": {str(at): "" for at in range(17)}}, "must have at most 16 entries",
    ),
    wrong("metadata.k", {"metadata": {"k": 5}}, "must be a string"),
    wrong(f"metadata.{'k' * 65}", {"metadata": {"k" * 65: "v"}}, "must have at most 64 characters"),
    unsupported(
        "background", {"background": True},
        "is not supported by this server: no answers are stored. Leave it out, or set it to false",
    ),
    unsupported(
        "previous_response_id", {"previous_response_id": "resp_1"},
        "is not supported by this server: no answers are stored; send the whole conversation in `input`. Leave it out",
    ),
    # What else OpenVINO Model Server is asked wrongly
    wrong("max_tokens", {"max_tokens": 0}, "must be at least 1"),
    wrong(
        "stream_options.include_usage",
        {"stream": True, "stream_options": {"include_usage": "yes"}},
        "must be true or false",
    ),
    wrong("logprobs", {"logprobs": "yes"}, "must be true or false"),
    wrong(
        "tool_choice",
        {
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": {"type": "function", "name": "g"},
        },
        "names a tool that is not in `tools`",
    ),
    wrong("chat_template_kwargs", {"chat_template_kwargs": "x"}, "must be an object"),
    missing("input[0].content", {"input": [{"role": "user"}]}),
    wrong("input[0].content", {"input": [{"role": "user", "content": 5}]}, CONTENT),
    wrong(
        "input[0].content[0]", {"input": [{"role": "user", "content": ["a"]}]}, "must be an object",
    ),
    missing("input[0].content[0].type", {"input": [{"role": "user", "content": [{"text": "a"}]}]}),
    wrong(
        "input[0].content[0]",
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
        "holds file input, but this model serves text only; send text parts",
    ),
    wrong(
        "input[0].content[0]",
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]},
        NO_IMAGE,
    ),
    wrong(
        "input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        NO_AUDIO,
    ),
    missing(
        "input[0].name", {"input": [{"type": "function_call", "call_id": "a", "arguments": "{}"}]},
    ),
    wrong(
        "input[0].output",
        {"input": [{"type": "function_call_output", "call_id": "a", "output": 5}]},
        CONTENT,
    ),
    wrong("reasoning.effort", {"reasoning": {"effort": "extreme"}}, EFFORTS),
    unsupported(
        "previous_response_id", {"previous_response_id": 5},
        "is not supported by this server: no answers are stored; send the whole conversation in `input`. Leave it out",
    ),
)  # fmt: skip
