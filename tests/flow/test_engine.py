"""The reasoning tags of an engine's family, and waiting for an engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.flow.tiny_chat import ASSETS, TINY_CHAT, new_engine
from tests.prompting.builders import a_chat
from vinery_serving.core.errors import ModelNotReady
from vinery_serving.core.request import Rendering
from vinery_serving.prompting.assets import ModelAssets


def test_a_prompt_that_ends_with_the_familys_reasoning_tag_opens_reasoning(tmp_path: Path) -> None:
    assets = ModelAssets.load(TINY_CHAT)
    new_engine(tmp_path, assets, output_format="mistral_think")
    rendering = Rendering(continues_final_message=True, adds_generation_prompt=False)
    chat = a_chat(("user", "Hi"), ("assistant", "[THINK]so"), rendering=rendering)
    assert assets.render(chat).opens_reasoning
    assert not ASSETS.render(chat).opens_reasoning


@pytest.mark.parametrize(
    ("event", "words"), [("is_gone", "not loaded any more"), ("is_failing", "failed to load")]
)
async def test_waiting_for_an_engine_that_cannot_start_ends_early(
    event: str, words: str, tmp_path: Path
) -> None:
    engine = new_engine(tmp_path)
    waiting = asyncio.create_task(engine.ready())
    await asyncio.sleep(0)
    setattr(engine, event, True)
    with pytest.raises(ModelNotReady, match=words):
        await asyncio.wait_for(waiting, 30)
