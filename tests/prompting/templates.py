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
