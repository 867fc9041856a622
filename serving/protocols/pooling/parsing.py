"""From the body of a pooling endpoint to its exchange."""

from collections.abc import Callable, Mapping
from typing import Final

from vinery_serving.core.endpoints import PoolingEndpoint
from vinery_serving.protocols.pooling.common import PoolingExchange
from vinery_serving.protocols.pooling.embeddings import parse_embeddings
from vinery_serving.protocols.pooling.rerank import parse_rerank, parse_score

_PARSERS: Final[Mapping[PoolingEndpoint, Callable[[bytes], PoolingExchange]]] = {
    PoolingEndpoint.EMBEDDINGS: parse_embeddings,
    PoolingEndpoint.RERANK: parse_rerank,
    PoolingEndpoint.SCORE: parse_score,
}


def parse_pooling(endpoint: PoolingEndpoint, body: bytes) -> PoolingExchange:
    """Raises `InvalidRequest` with the path of the field in `param`."""
    return _PARSERS[endpoint](body)
