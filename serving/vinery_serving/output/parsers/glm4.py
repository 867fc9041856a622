"""The calls of GLM-4.5 and later:

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

GLM-4.7 writes the same without line breaks.
"""

from vinery_serving.output.parsers.tagged import TagSyntax, tagged_family

SYNTAX = TagSyntax(
    call_begin="<tool_call>",
    name_end="",
    after_name="\n",
    key_begin="<arg_key>",
    key_end="</arg_key>",
    after_key="\n",
    value_begin="<arg_value>",
    value_end="</arg_value>",
    after_value="\n",
    call_end="</tool_call>",
)

GLM4 = tagged_family(
    SYNTAX,
    SYNTAX.call_begin,
    SYNTAX.key_begin,
    SYNTAX.key_end,
    SYNTAX.value_begin,
    SYNTAX.value_end,
    SYNTAX.call_end,
)
