"""The checker's own process: why the grammar library refuses a grammar."""

from __future__ import annotations

from pathlib import Path

import openvino_genai as genai
import pytest

from tests.conftest import REPOSITORY
from vinery_serving.core.request import GrammarKind
from vinery_serving.engine.canary import Canary
from vinery_serving.transport.messages import GrammarSpec

pytestmark = pytest.mark.live

TINY_CHAT = REPOSITORY / "models" / "tiny-chat"


def test_a_refusal_that_quotes_half_a_character_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    canary = Canary(genai.Tokenizer(str(TINY_CHAT)), 3072)

    assert not list(tmp_path.iterdir()), "a process that is killed would leave them"
    refusal = canary.refusal(GrammarSpec(GrammarKind.EBNF, "\u202e"))

    assert refusal is not None
    assert "Unexpected character" in refusal
    assert canary.refusal(GrammarSpec(GrammarKind.EBNF, 'root ::= "a"')) is None
