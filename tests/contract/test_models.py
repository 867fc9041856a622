"""`GET /models`: what can answer now, with the members that clients size and choose by."""

from __future__ import annotations

import httpx
import openai

from tests.tables import table

from .conftest import TREES
from .tiny_chat import CONTEXT, MODEL

both_trees = table("tree", TREES)


def test_openais_client_lists_and_finds_a_model(client: openai.OpenAI) -> None:
    [listed] = client.models.list().data

    assert listed.id == MODEL
    assert client.models.retrieve(MODEL) == listed


@both_trees
def test_a_model_has_its_context_and_abilities(raw: httpx.Client, tree: str) -> None:
    model = raw.get(f"/{tree}/models/{MODEL}").json()

    assert model["state"] == "loaded"
    for name in ("max_model_len", "context_length", "max_context_length"):
        assert model[name] == CONTEXT
    assert model["top_provider"]["context_length"] == CONTEXT
    assert model["architecture"]["input_modalities"] == ["text"]
    assert model["capabilities"] == {
        "completion": True,
        "completion_chat": True,
        "completion_fim": False,
        "function_calling": True,
        "reasoning": True,
        "structured_outputs": True,
        "vision": False,
        "audio": False,
    }
    assert {"tools", "tool_choice", "response_format", "reasoning"} <= set(
        model["supported_parameters"]
    )


def test_every_parameter_of_the_list_is_one_that_chats_take(raw: httpx.Client) -> None:
    model = raw.get(f"/v1/models/{MODEL}").json()
    schemas = raw.get("/openapi.json").json()["components"]["schemas"]
    chat = schemas["ChatBody"]

    honoured = {name for name, text in chat["x-foreign"].items() if text.startswith("honoured")}
    taken = {name for name, each in chat["properties"].items() if "x-refused" not in each}
    assert set(model["supported_parameters"]) <= honoured | taken


@both_trees
@table("value", ["true", "1", "True", "false", "0"])
def test_all_models_may_be_listed(raw: httpx.Client, tree: str, value: str) -> None:
    listed = raw.get(f"/{tree}/models", params={"all": value})

    assert [model["id"] for model in listed.json()["data"]] == [MODEL]


@both_trees
def test_another_value_of_all_is_refused(raw: httpx.Client, tree: str) -> None:
    refused = raw.get(f"/{tree}/models", params={"all": "some"})

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "all"
