"""The paths that clients of other servers send, as the paths of this API.

Azure's clients name the model in the path, as a deployment. A base URL that ends with a slash
doubles it, and one that ends with a prefix may double that. What comes out goes through the same
routes, keys and limits as if the client had sent it.
"""

from itertools import takewhile
from typing import Final, NamedTuple

from vinery_serving.core.dialects import DIALECTS, V1
from vinery_serving.gateway.endpoints.edge import App, Receive, Scope, Send

# The model that the path names. It replaces that of the body, as Azure's deployments do.
DEPLOYMENT: Final = "vinery.deployment"
# Names of models may have empty segments.
_AS_SENT: Final = tuple(f"/{tree}/models/" for tree in DIALECTS)

# The last is Cohere's.
_PREFIXES: Final = (*DIALECTS, "v2")


class OwnPath(NamedTuple):
    path: str
    deployment: str | None = None


def own_path(path: str) -> OwnPath:
    """Return the path of this API for a decoded path; any other path unchanged."""
    if path.startswith(_AS_SENT):
        return OwnPath(path)
    match [part for part in path.split("/") if part]:
        case ["openai", "deployments", *model, "chat", "completions"] if model:
            return OwnPath(f"/{V1.name}/chat/completions", "/".join(model))
        case ["openai", "deployments", *model, "completions"] if model:
            return OwnPath(f"/{V1.name}/completions", "/".join(model))
        case ["openai", "deployments", *model, "embeddings"] if model:
            return OwnPath(f"/{V1.name}/embeddings", "/".join(model))
        case ["openai", V1.name, *rest]:
            return OwnPath(_joined(V1.name, *rest))
        case [
            "openai",
            "chat" | "completions" | "responses" | "models" | "embeddings" as first,
            *rest,
        ]:
            return OwnPath(_joined(V1.name, first, *rest))
        case [prefix, *rest] if prefix in _PREFIXES:
            return OwnPath(_joined(prefix, *rest))
    return OwnPath(path)


def _joined(*parts: str) -> str:
    """The path of several prefixes is that of the last one that is not `v1`: one is of a base URL,
    and the other is what the client adds to it."""
    prefixes = list(takewhile(_PREFIXES.__contains__, parts))
    own = [each for each in prefixes if each != V1.name] or [V1.name]
    return "/".join(("", own[-1], *parts[len(prefixes) :]))


class OwnPaths:
    """An ASGI middleware that gives the routes the paths of this API."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, deployment = own_path(scope["path"])
        await self._app({**scope, "path": path, DEPLOYMENT: deployment}, receive, send)
