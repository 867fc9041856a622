"""`/embeddings`: OpenAI's body and answer, with the parameters that vLLM, TEI and Cohere add."""

from array import array
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field, PlainValidator

from vinery_serving.core import field_limits
from vinery_serving.core.pooling import PoolingInput, PoolingRequest, PoolingResult, TextRole
from vinery_serving.core.tasks import Endpoint
from vinery_serving.core.unused import Unused
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.encoding import Answer, json_bytes
from vinery_serving.protocols.common.limited import TEXT_LIMIT, Identifier, Limited, refuse_long
from vinery_serving.protocols.common.parameters import EVERY_SYSTEM, parameter
from vinery_serving.protocols.common.prompting import Ids, ManyIds, read_prompts
from vinery_serving.protocols.common.reading import invalid
from vinery_serving.protocols.pooling.common import (
    PoolingBody,
    PoolingUsage,
    usage,
)

_ROLES: Final = {
    "query": TextRole.QUERY,
    "search_query": TextRole.QUERY,
    "document": TextRole.DOCUMENT,
    "passage": TextRole.DOCUMENT,
    "search_document": TextRole.DOCUMENT,
}


def _read_inputs(value: object) -> tuple[PoolingInput, ...]:
    inputs = read_prompts(value)
    if "" in inputs:
        raise invalid("must not have an empty text")
    return inputs


_Text = Annotated[str, Field(min_length=1), TEXT_LIMIT]
_Texts = Annotated[list[_Text], Field(min_length=1), Limited(field_limits.PROMPTS)]
Inputs = Annotated[
    tuple[PoolingInput, ...],
    PlainValidator(_read_inputs, json_schema_input_type=_Text | _Texts | Ids | ManyIds),
]


class EmbeddingsBody(PoolingBody):
    """The parameters of embeddings."""

    input: Inputs = parameter(
        "A text, several texts, token ids, or several lists of token ids.",
        of=EVERY_SYSTEM,
        is_required=True,
    )
    encoding_format: Literal["float", "base64"] | None = parameter(
        "`base64`: each vector as the base64 text of 32-bit floats, little-endian. Default: "
        "`float`.",
        of=EVERY_SYSTEM,
    )
    dimensions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = parameter(
        "The first numbers of each vector, scaled to length 1 again. Default: all numbers.",
        of="OpenAI, vLLM, FastDeploy",
    )
    input_type: (
        Literal["query", "document", "passage", "search_query", "search_document"] | None
    ) = parameter("What the texts are, for models with a text before queries or documents.")
    prompt_name: Identifier | None = parameter(
        "The name of a text before each input in the model's config_sentence_transformers.json."
    )

    def request(self, unused: Unused) -> PoolingRequest:
        """Raises `InvalidRequest`."""
        request = PoolingRequest(
            Endpoint.EMBEDDINGS,
            self.model,
            self.input,
            param="input",
            truncation=self.truncation(),
            dimensions=self.dimensions,
            role=None if self.input_type is None else _ROLES[self.input_type],
            prompt_name=self.prompt_name,
            unused=unused,
            end_user=self.user or "",
        )
        refuse_long("input", request.num_chars)
        return request


class Embedding(Answer, kw_only=True):
    """The vector of one text: numbers, or their 32-bit floats in base64."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Embeddings(Answer, kw_only=True):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PoolingUsage


@dataclass(frozen=True, slots=True)
class EmbeddingsExchange:
    request: PoolingRequest
    is_base64: bool

    def body(self, result: PoolingResult, model: str, request_id: str) -> Iterator[bytes]:
        """Yield the parts of the answer's JSON, one for each vector."""
        yield b'{"object":"list","data":['
        for index, vector in enumerate(result.vectors):
            if index:
                yield b","
            yield json_bytes(Embedding(index=index, embedding=self._written(vector)))
        yield b"]," + json_bytes({"model": model, "usage": usage(result.num_tokens)})[1:]

    def _written(self, vector: bytes) -> str | list[float]:
        if self.is_base64:
            return b64encode(vector).decode("ascii")
        return array("f", vector).tolist()


def parse_embeddings(body: bytes) -> EmbeddingsExchange:
    """Read the body of `/embeddings`. Raises `InvalidRequest`."""
    wire, unused = read_body(Endpoint.EMBEDDINGS, EmbeddingsBody, body)
    return EmbeddingsExchange(wire.request(unused), wire.encoding_format == "base64")
