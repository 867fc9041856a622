"""Chat templates in the manner of each family: short, but with all its marks."""

QWEN25 = """
{%- if tools %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '\\n\\n# Tools\\n\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\n\\nFor each call, return JSON within <tool_call></tool_call>:\\n' }}
    {{- '<tool_call>\\n{"name": <function-name>, "arguments": <args>}\\n</tool_call>' }}
{%- endif %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

QWEN3 = (
    QWEN25
    + """
{%- if '</think>' in content %}
    {%- set reasoning = content.split('</think>')[0].split('<think>')[-1] %}
{%- endif %}
{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
"""
)

QWQ = QWEN25 + "{%- if add_generation_prompt %}{{- '<think>\\n' }}{%- endif %}"

LLAMA31 = """
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if builtin_tools is defined %}{{- 'Environment: ipython\\n' }}{%- endif %}
{{- 'Respond in the format {"name": function name, "parameters": dictionary of arguments}.' }}
{%- if message.tool_calls and builtin_tools is defined %}
    {{- '<|python_tag|>' + tool_call.name + '.call(' }}
{%- else %}
    {{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}
    {{- tool_call.arguments | tojson }}{{- '}' }}
{%- endif %}
{{- '<|eot_id|>' }}
"""

LLAMA32 = """
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}
{{- tool_call.arguments | tojson }}{{- '}<|eot_id|>' }}
"""

LLAMA3_WITHOUT_TOOLS = """
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
"""

PHI4_WITH_WORD = """
{{- '<|system|>\\nPrefix calls with the marker functools, in one JSON list: ' }}
{{- 'functools[{"name": [function name], "arguments": [arguments as JSON]}, ...]' }}
{{- '<|end|>\\n<|assistant|>\\n' }}
"""

PHI4_MINI = """
{%- if message['role'] == 'system' and message['tools'] %}
    {{- '<|system|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|><|end|>' }}
{%- endif %}
{{- '<|assistant|>' }}
"""

PHI4_REASONING = """
{{- '<|im_start|>system<|im_sep|>Structure your answer into two parts: ' }}
{{- '<think> {Thought} </think> {Solution}.<|im_end|><|im_start|>assistant<|im_sep|>' }}
"""

GRANITE32 = """
{{- '<|start_of_role|>system<|end_of_role|>' }}
{%- if tools %}
    {{- 'When a tool is required, respond only with <|tool_call|> and a JSON list of tools.' }}
{%- endif %}
{%- if thinking %}
    {{- "Write your thought process after 'Here is my thought process:'" }}
    {{- " and your response after 'Here is my response:'." }}
{%- endif %}
{{- '<|end_of_text|>\\n<|start_of_role|>assistant<|end_of_role|>' }}
"""

GRANITE31 = """
{{- '<|start_of_role|>tools<|end_of_role|>' + tools | tojson + '<|end_of_text|>' }}
{{- 'Respond with <|tool_call|> followed by a JSON list of tools used.' }}
{{- '<|start_of_role|>assistant<|end_of_role|>' }}
"""

GRANITE33 = """
{{- '<|start_of_role|>system<|end_of_role|>' }}
{%- if thinking %}
    {{- 'Think between <think></think> and answer between <response></response>.' }}
{%- endif %}
{%- if tools %}{{- 'Respond only with <|tool_call|> followed by a JSON list.' }}{%- endif %}
{{- '<|start_of_role|>assistant<|end_of_role|>' }}
"""

GRANITE4 = """
{{- '<|start_of_role|>system<|end_of_role|>Return JSON within <tool_call></tool_call>.' }}
{{- '<tool_call>\\n{"name": ' + call.name + ', "arguments": ' + args + '}\\n</tool_call>' }}
"""

MISTRAL_V3 = """
{{- '[AVAILABLE_TOOLS][' + tools | tojson + '][/AVAILABLE_TOOLS][INST]' + content + '[/INST]' }}
{{- '[TOOL_CALLS][' }}{{- call | tojson }}{{- ', "id": "' + call.id + '"}]' + eos_token }}
"""

MISTRAL_SMALL_32 = """
{{- '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}
{{- '[TOOL_CALLS]' + name + '[CALL_ID]' + call_id + '[ARGS]' + arguments }}
"""

DEVSTRAL = """
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + arguments }}{{- eos_token }}
"""

MAGISTRAL = (
    DEVSTRAL
    + """
{{- '[SYSTEM_PROMPT]First draft your thinking: [THINK]Your thoughts[/THINK]Your answer' }}
"""
)

DEEPSEEK_V3 = """
{{- '<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] }}
{{- '<｜tool▁sep｜>' + tool['function']['name'] + '\\n```json\\n' + arguments + '\\n```' }}
{{- '<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
"""

DEEPSEEK_R1 = (
    DEEPSEEK_V3
    + """
{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] %}{%- endif %}
{{- '<｜Assistant｜><think>\\n' }}
"""
)

DEEPSEEK_V31 = """
{{- '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments }}
{{- '<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}
{%- if thinking %}{{- '<think>' }}{%- else %}{{- '</think>' }}{%- endif %}
"""

KIMI_K2 = """
{%- macro render_toolcalls(message) -%}
  <|tool_calls_section_begin|>
  {%- for tool_call in message['tool_calls'] -%}
    <|tool_call_begin|>{{ tool_call['id'] }}<|tool_call_argument_begin|>
    {{- tool_call['function']['arguments'] | tojson }}<|tool_call_end|>
  {%- endfor -%}
  <|tool_calls_section_end|>
{%- endmacro -%}
<|im_assistant|>assistant<|im_middle|>
"""

# Each with the name of its format.
TEMPLATES: dict[str, tuple[str, str]] = {
    "Qwen 2.5": (QWEN25, "hermes"),
    "Qwen 3": (QWEN3, "think+hermes"),
    "QwQ": (QWQ, "think+hermes"),
    "Llama 3.1": (LLAMA31, "llama3"),
    "Llama 3.2": (LLAMA32, "llama3"),
    "Llama 3": (LLAMA3_WITHOUT_TOOLS, "plain"),
    "Phi-4-mini, a template with a word": (PHI4_WITH_WORD, "phi4"),
    "Phi-4-mini": (PHI4_MINI, "phi4"),
    "Phi-4-reasoning": (PHI4_REASONING, "think"),
    "Granite 3.1": (GRANITE31, "granite"),
    "Granite 3.2": (GRANITE32, "granite_think+granite"),
    "Granite 3.3": (GRANITE33, "granite_think+granite"),
    "Granite 4": (GRANITE4, "hermes"),
    "Mistral 7B v0.3": (MISTRAL_V3, "mistral"),
    "Mistral Small 3.2": (MISTRAL_SMALL_32, "devstral"),
    "Devstral": (DEVSTRAL, "devstral"),
    "Magistral": (MAGISTRAL, "mistral_think+devstral"),
    "Kimi K2": (KIMI_K2, "kimi_k2"),
    "DeepSeek V3": (DEEPSEEK_V3, "deepseek_v3"),
    "DeepSeek R1": (DEEPSEEK_R1, "think+deepseek_v3"),
    "DeepSeek V3.1": (DEEPSEEK_V31, "think+deepseek_v31"),
}
