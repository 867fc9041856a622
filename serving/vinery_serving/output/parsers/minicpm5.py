"""The calls of MiniCPM5:

    <function name="get_weather"><param name="city">Paris</param></function>

A value that holds tags or line breaks may be in a CDATA section.
"""

from vinery_serving.output.parsers.tagged import TagSyntax, tagged_family

SYNTAX = TagSyntax(
    call_begin='<function name="',
    name_end='">',
    key_begin='<param name="',
    key_end='">',
    value_end="</param>",
    call_end="</function>",
    may_have_lines=True,
    has_cdata=True,
)

# The model's tokens are halves of the tags.
MINICPM5 = tagged_family(SYNTAX, "<function", "</function>", "<param", "</param>")
