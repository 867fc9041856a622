"""The protocols of embeddings, rerank and score."""

from typing import assert_never

from vinery_serving.core.endpoints import PoolingEndpoint
from vinery_serving.protocols.pooling.common import PoolingExchange
from vinery_serving.protocols.pooling.embeddings import parse_embeddings
from vinery_serving.protocols.pooling.rerank import (
    COHERES_DOCUMENT_TOKENS,
    parse_rerank,
    parse_score,
)


def parse_pooling(
    endpoint: PoolingEndpoint, body: bytes, *, is_v2: bool = False
) -> PoolingExchange:
    """Raises `InvalidRequest` with the path of the field in `param`."""
    match endpoint:
        case PoolingEndpoint.EMBEDDINGS:
            return parse_embeddings(body)
        case PoolingEndpoint.RERANK:
            return parse_rerank(body, COHERES_DOCUMENT_TOKENS if is_v2 else None)
        case PoolingEndpoint.SCORE:
            return parse_score(body)
    assert_never(endpoint)
