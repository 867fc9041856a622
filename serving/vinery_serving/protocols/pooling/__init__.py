"""The protocols of embeddings, rerank and score."""

from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.pooling.common import PoolingExchange
from vinery_serving.protocols.pooling.embeddings import parse_embeddings
from vinery_serving.protocols.pooling.rerank import (
    COHERES_DOCUMENT_TOKENS,
    parse_rerank,
    parse_score,
)


def parse_pooling(endpoint: Endpoint, body: bytes, *, is_v2: bool = False) -> PoolingExchange:
    """Raises `InvalidRequest` with the path of the field in `param`."""
    if endpoint is Endpoint.RERANK:
        return parse_rerank(body, COHERES_DOCUMENT_TOKENS if is_v2 else None)
    return parse_embeddings(body) if endpoint is Endpoint.EMBEDDINGS else parse_score(body)
