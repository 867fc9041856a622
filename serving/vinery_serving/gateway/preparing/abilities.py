"""What a served model can do, for the list of models."""

from dataclasses import dataclass

from vinery_serving.gateway.engines.directory import LoadedModel


@dataclass(frozen=True, slots=True)
class Abilities:
    chats: bool  # it has a chat template
    calls_tools: bool
    reasons: bool
    fills_in_middle: bool
    sees: bool  # it takes pictures, and the pages of documents
    watches: bool  # it takes videos


def abilities_of(model: LoadedModel) -> Abilities:
    """Return what the model's files allow, and its output format lets the server read."""
    assets, family = model.assets, model.family
    return Abilities(
        chats=assets.template_text is not None,
        calls_tools=assets.takes_tools and family.grammar.supports_calls,
        reasons=family.parser.reasoning is not None,
        fills_in_middle=assets.fills_in_middle,
        sees=assets.vision is not None,
        watches=assets.vision is not None and assets.vision.takes_video,
    )
