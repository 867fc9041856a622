"""The calls and answers of gpt-oss as messages (see the parser)."""

from typing import Final

from vinery_serving.core.request import Tool, ToolChoice, ToolMode
from vinery_serving.grammars.arguments import arguments_tag
from vinery_serving.grammars.family import Family, GrammarFamily, sequence, tag, text
from vinery_serving.grammars.grammar.ebnf import StructuralTag
from vinery_serving.output.parsers import gptoss
from vinery_serving.output.parsers.gptoss import CALL, CHANNEL, CONSTRAIN, NEXT, TO
from vinery_serving.output.parsers.messages import MESSAGE

# How the head of a call goes on after its name, the usual form first.
_HEAD_ENDS: Final = (
    f" {CONSTRAIN}json{MESSAGE}",
    f"{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}",
    f"{CHANNEL}commentary json{MESSAGE}",
    f" json{MESSAGE}",
    MESSAGE,
)


def _call(tool: Tool, choice: ToolChoice) -> StructuralTag:
    """In free text the tag begins at the recipient: what comes before it differs."""
    name, arguments = f"{TO}{tool.name}", arguments_tag(tool, choice)
    if choice.mode is not ToolMode.AUTO:
        return tag(f"{CHANNEL}commentary {name}{_HEAD_ENDS[0]}", arguments, CALL)
    head_end = {"type": "or", "elements": [text(end) for end in _HEAD_ENDS]}
    return tag(name, sequence(head_end, arguments), CALL)


GPTOSS = Family(
    "gptoss",
    ((CHANNEL, MESSAGE),),
    gptoss.GPTOSS,
    GrammarFamily(
        _call,
        trigger=TO,
        separator=NEXT,
        answer_begin=f"{CHANNEL}final{MESSAGE}",
        reasoning=gptoss.REASONING,
        may_reason_first=True,
    ),
)
