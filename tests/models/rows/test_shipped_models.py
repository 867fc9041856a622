"""The files of the reference models: templates, defaults and tokenizers as they were trained. What
the templates render is in `tests/golden/prompting` and `tests/prompting/test_vision.py`."""

import json

from tests.models.rows.conftest import MODELS
from tests.tables import table


@table("name, trained", [("tiny-chat", "."), ("tiny-draft", "."), ("tiny-vision", "vision")])
def test_a_shipped_model_has_the_template_of_training_and_is_greedy(name, trained):
    template, source = (MODELS / name / "chat_template.jinja", MODELS / "training" / trained)
    assert template.read_bytes() == (source / "template.jinja").read_bytes()
    defaults = json.loads((MODELS / name / "generation_config.json").read_bytes())
    assert defaults["do_sample"] is False
    assert "temperature" not in defaults
    chat, draft = (MODELS / each / "tokenizer.json" for each in ("tiny-chat", "tiny-draft"))
    assert chat.read_bytes() == draft.read_bytes()
