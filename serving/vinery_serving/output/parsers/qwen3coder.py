"""The calls of Qwen3-Coder, Qwen3.5 and others that learned from them:

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

The outer tags may be missing: smaller models forget the first one.
"""

from vinery_serving.output.parsers.tagged import TagSyntax, tagged_family

SYNTAX = TagSyntax(
    wrapper="<tool_call>",
    after_wrapper="\n",
    call_begin="<function=",
    name_end=">",
    after_name="\n",
    key_begin="<parameter=",
    key_end=">",
    value_end="</parameter>",
    after_value="\n",
    call_end="</function>",
    wrapper_end="</tool_call>",
    has_lines=True,
)

QWEN3CODER = tagged_family(SYNTAX, SYNTAX.wrapper, SYNTAX.wrapper_end)
