"""The real engine and its grammar library, shared by all tests."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.engine.conftest import TINY_CHAT
from tests.output.conftest import model as model
from vinery_serving.core.request import Grammar
from vinery_serving.engine.canary import Canary
from vinery_serving.transport.messages import GrammarSpec

Refusal = Callable[[Grammar], str | None]


@pytest.fixture(scope="session")
def refusal() -> Refusal:
    """Returns why a grammar does not compile; None if it does. Each grammar is compiled once:
    many families have equal grammars."""
    import openvino_genai

    vocab_size = json.loads((TINY_CHAT / "config.json").read_text())["vocab_size"]
    tokenizer: Any = openvino_genai.Tokenizer(str(TINY_CHAT))
    canary = Canary(tokenizer, vocab_size)
    compiled = cache(canary.refusal)
    return lambda grammar: compiled(GrammarSpec(grammar.kind, grammar.source))
