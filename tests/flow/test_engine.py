"""What one engine's entry tells its model's assets, and who waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.core.errors import ModelNotReady
from serving.core.request import Conversation, Message, Rendering, Role, TextPart
from serving.prompting.assets import ModelAssets
from tests.flow.tiny_chat import ASSETS, TINY_CHAT, new_engine


def test_a_prompt_that_opens_a_thought_in_the_models_own_words_begins_inside_it(
    tmp_path: Path,
) -> None:
    assets = ModelAssets.load(TINY_CHAT)
    new_engine(tmp_path, assets, output_format="mistral_think")
    turns = (
        Message(Role.USER, (TextPart("Hi"),)),
        Message(Role.ASSISTANT, (TextPart("[THINK]so"),)),
    )
    rendering = Rendering(continues_final_message=True, adds_generation_prompt=False)
    assert assets.render(Conversation(turns, rendering=rendering)).opens_reasoning
    assert not ASSETS.render(Conversation(turns, rendering=rendering)).opens_reasoning


@pytest.mark.parametrize(
    ("event", "words"), [("is_gone", "not loaded any more"), ("is_failing", "does not start")]
)
async def test_who_waits_for_an_engine_hears_when_there_is_no_hope_left(
    event: str, words: str, tmp_path: Path
) -> None:
    engine = new_engine(tmp_path)
    waiting = asyncio.create_task(engine.wait(timeout_s=3600))
    await asyncio.sleep(0)
    setattr(engine, event, True)
    with pytest.raises(ModelNotReady, match=words):
        await asyncio.wait_for(waiting, 30)
