"""Small chat templates, each of a style that models in the wild have."""

from __future__ import annotations

# Any role is printed as it comes.
CHATML = """\
{% for message in messages %}
{{ '<|' + message.role + '|>' + message.content + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|assistant|>' }}
{%- endif %}
"""

# Gemma: no system role, and user and assistant must take turns.
NO_SYSTEM = """\
{{- bos_token -}}
{%- if messages[0]['role'] == 'system' -%}
{{ raise_exception('System role not supported') }}
{%- endif -%}
{%- for message in messages -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif -%}
<{{ message['role'] }}>{{ message['content'] | trim }}
{%- endfor -%}
"""

# One system message at the start, later ones are lost; the developer role is lost.
LEADING_SYSTEM = """\
{%- if messages[0].role == 'system' -%}[SYS]{{ messages[0].content }}[/SYS]{%- endif -%}
{%- for message in messages if message.role in ('user', 'assistant') -%}
[{{ message.role }}]{{ message.content }}
{%- endfor -%}
"""

DEVELOPER_AWARE = """\
{%- for message in messages -%}
{%- if message.role == 'developer' -%}<dev>{%- elif message.role == 'system' -%}<sys>
{%- else -%}<{{ message.role }}>{%- endif -%}
{{ message.content }}
{%- endfor -%}
"""

# Vision models: content is a list of parts.
PARTS = """\
{%- for message in messages -%}
<{{ message.role }}>
{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
{%- endfor -%}
"""

# DeepSeek: arguments are pasted as text, and calls are shown only beside null content.
TEXT_ARGUMENTS = """\
{%- for message in messages -%}
{%- if message.role == 'assistant' and message.content is none -%}
{%- for call in message.tool_calls -%}
<call>{{ call.function.name + ':' + call.function.arguments }}
{%- endfor -%}
{%- else -%}<{{ message.role }}>{{ message.content }}{%- endif -%}
{%- endfor -%}
"""

# DeepSeek R1: content that is not null is an answer, even beside calls.
EMPTY_ANSWERS = """\
{%- for message in messages -%}
{%- for call in message.tool_calls or [] -%}<call>{{ call.function.name }}{%- endfor -%}
{%- if message.content is not none -%}<{{ message.role }}>{{ message.content }}{%- endif -%}
{%- endfor -%}
"""

# Some models print the dict itself when given one.
PRINTED_ARGUMENTS = """\
{%- for message in messages -%}
<{{ message.role }}>{{ message.content }}
{%- for call in message.tool_calls or [] -%}
({{ call.function.name }} {{ call.function.arguments }})
{%- endfor -%}
{%- endfor -%}
"""

# Qwen 3 Coder: the template takes the arguments apart.
ITEMIZED_ARGUMENTS = """\
{%- for message in messages -%}
<{{ message.role }}>{{ message.content }}
{%- for call in message.tool_calls or [] -%}
{{ call.function.name }}
{%- for name, value in call.function.arguments | items %} {{ name }}={{ value }}{% endfor %}
{%- endfor -%}
{%- endfor -%}
"""

# Qwen 3: reasoning is rendered only after the last question, and the prompt opens it.
REASONING = """\
{%- set ns = namespace(last=0) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
<{{ message.role }}>
{%- if message.KEY and loop.index0 > ns.last -%}<think>{{ message.KEY }}</think>{%- endif -%}
{{ message.content }}
{%- endfor -%}
{%- if add_generation_prompt -%}<assistant><think>
{% endif -%}
"""

TOOLS = """\
{%- if tools -%}{{ tools | tojson }}{%- endif -%}
{%- for message in messages -%}<{{ message.role }}>{{ message.content }}{%- endfor -%}
"""

# Mistral v0.3 and Nemo: ids of calls must have nine characters, in the call and in its result.
SHORT_IDS = """\
{%- for message in messages -%}
{%- if message.tool_calls is defined and message.tool_calls is not none -%}
{%- for call in message.tool_calls -%}
{%- if call.id | length != 9 -%}{{ raise_exception('ids must have length 9') }}{%- endif -%}
[CALL]{{ call.function.name }} {{ call.id }}
{%- endfor -%}
{%- elif message.role == 'tool' -%}
{%- if message.tool_call_id | length != 9 -%}{{ raise_exception('length 9') }}{%- endif -%}
[RESULT]{{ message.content }} {{ message.tool_call_id }}
{%- else -%}[{{ message.role }}]{{ message.content }}{%- endif -%}
{%- endfor -%}
"""

# Falcon 3: without tools, calls and results are left out, and null content raises.
CALLS_BESIDE_TOOLS = """\
{%- if tools -%}
{{- tools | tojson -}}
{%- for message in messages -%}
<{{ message.role }}>{{ message.content if message.content }}
{%- if message.tool_calls -%}{{ message.tool_calls | tojson }}{%- endif -%}
{%- endfor -%}
{%- else -%}
{%- for message in messages if message.role in ('user', 'assistant') -%}
{{- '<' + message.role + '>' + message.content -}}
{%- endfor -%}
{%- endif -%}
"""

# Command R's template for tools: it reads a list of them, and the description of each parameter.
LISTED_TOOLS = """\
{%- for tool in tools -%}
def {{ tool.function.name }}: {{ tool.function.description }}
{%- for name, schema in tool.function.parameters.properties | items -%}
{{- ' ' + name + ': ' + schema.description -}}
{%- endfor -%}
{%- endfor -%}
{%- for message in messages -%}
<{{ message.role }}>
{%- if message.tool_calls is defined -%}
{%- for call in message.tool_calls -%}
{{- call.function.name + call.function.arguments | tojson -}}
{%- endfor -%}
{%- else -%}{{- message.content | trim -}}{%- endif -%}
{%- endfor -%}
"""

# gpt-oss: the description of a tool is a part of a longer text.
JOINED_DESCRIPTION = """\
{%- for tool in tools or [] -%}
{{- '// ' + tool.function.description + ' ' + tool.function.name -}}
{%- endfor -%}
{%- for message in messages -%}<{{ message.role }}>{{ message.content }}{%- endfor -%}
"""

# gpt-oss and Llama 3: a turn has one call, and text or reasoning before it, not both.
SINGLE_CALLS = """\
{%- set last = namespace(name=none) -%}
{%- for message in messages -%}
{%- if message.tool_calls -%}
{%- if message.content and message.thinking -%}{{ raise_exception('both') }}{%- endif -%}
{%- set call = message.tool_calls[0].function -%}
<think>{{ message.thinking or message.content }}</think>{{ call.name }}{{ call.arguments | tojson }}
{%- set last.name = call.name -%}
{%- elif message.role == 'tool' -%}
{%- if last.name is none -%}{{ raise_exception('no call') }}{%- endif -%}
<{{ last.name }}>{{ message.content }}
{%- else -%}<{{ message.role }}>{{ message.content }}{%- set last.name = none -%}{%- endif -%}
{%- endfor -%}
"""
