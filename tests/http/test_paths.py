"""Paths of Azure's clients, and base URLs with a slash or `/v1` too many."""

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.gateway.endpoints.edge import own_path


@table(
    "sent, own, deployment",
    [
        ("/openai/deployments/tiny/chat/completions", "/v1/chat/completions", "tiny"),
        ("/openai/deployments/tiny/completions", "/v1/completions", "tiny"),
        ("/openai/deployments/org/tiny/chat/completions", "/v1/chat/completions", "org/tiny"),
        ("/openai/v1/responses", "/v1/responses", None),
        ("/openai/v1/models/org/tiny", "/v1/models/org/tiny", None),
        ("/openai/responses", "/v1/responses", None),
        ("/openai/models", "/v1/models", None),
        ("/v1//chat/completions", "/v1/chat/completions", None),
        ("//v3/chat//completions/", "/v3/chat/completions", None),
        ("/v1/v1/completions", "/v1/completions", None),
        ("/v3/v1/chat/completions", "/v3/chat/completions", None),
        ("/v1/v3/chat/completions", "/v3/chat/completions", None),
        ("/openai/v1/v1/chat/completions", "/v1/chat/completions", None),
        *((f"/{each}/v2/rerank", "/v2/rerank", None) for each in ("v1", "v2", "v3")),
        *((f"/{each}/v1/rerank", f"/{each}/rerank", None) for each in ("v1", "v2", "v3")),
    ],
)
def test_the_path_of_another_server_is_a_path_of_this_api(
    sent: str, own: str, deployment: str | None
) -> None:
    assert own_path(sent) == (own, deployment)


@table(
    "path",
    [
        "/v1/models/a//b", "/tokenize", "//admin", "/openai", "/openai/admin",
        "/openai/deployments/tiny/images/generations",
    ],
)  # fmt: skip
def test_any_other_path_stays_as_it_is(path: str) -> None:
    assert own_path(path) == (path, None)


@given(st.lists(st.sampled_from(["openai", "v1", "v2", "v3", "admin", "api", "chat", "", ".."])))
def test_no_path_leaves_the_api(parts: list[str]) -> None:
    """Only a path that names the API comes out changed, and only as a path of the API."""
    path = "/" + "/".join(parts)
    own = own_path(path).path

    assert own == path or own.split("/")[1] in ("v1", "v2", "v3")
    assert own == path or next(filter(None, parts)) in ("v1", "v2", "v3", "openai")
