"""The embeddings model and the rerank model that ship, on a running platform."""

from contextlib import AbstractContextManager

from tests.conftest import Running
from tests.system.clients import serving


def pooling_models(running: Running) -> AbstractContextManager[None]:
    return serving(running, {name: [name] for name in ("tiny-embed", "tiny-rerank")})
