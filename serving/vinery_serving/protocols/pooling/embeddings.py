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
from vinery_serving.protocols.common.encoding import json_bytes
from vinery_serving.protocols.common.limited import TEXT_LIMIT, Identifier, Limited, refuse_long
from vinery_serving.protocols.common.parameters import TokenId, parameter
from vinery_serving.protocols.common.reading import invalid
from vinery_serving.protocols.pooling.common import PoolingBody, read_pooling_body, usage

_MAX_TOKEN_ID: Final = 2**31 - 1  # engines take int32
_INPUTS: Final = Limited(field_limits.PROMPTS)
_INPUT_IDS: Final = Limited(field_limits.PROMPT_IDS)
_NO_INPUT: Final = "must be a string, an array of strings, or one or more arrays of token ids"
_EMPTY: Final = "must not have an empty text"
_ONE_KIND: Final = "must have only strings or only token ids: integers from 0"
_ROLES: Final = {
    "query": TextRole.QUERY,
    "search_query": TextRole.QUERY,
    "document": TextRole.DOCUMENT,
    "passage": TextRole.DOCUMENT,
    "search_document": TextRole.DOCUMENT,
}


def _read_inputs(value: object) -> tuple[PoolingInput, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise invalid(_NO_INPUT)
    if not value:
        raise invalid("must not be empty")
    if all(isinstance(entry, int) for entry in value):
        return (_token_ids(value),)
    _INPUTS.check(value)
    if all(isinstance(entry, str) for entry in value):
        if "" in value:
            raise invalid(_EMPTY)
        return tuple(value)
    if all(isinstance(entry, list) for entry in value):
        return tuple(map(_token_ids, value))
    raise invalid(_ONE_KIND)


def _token_ids(value: list[object]) -> tuple[int, ...]:
    if not value:
        raise invalid("must not have an empty array of token ids")
    _INPUT_IDS.check(value)
    ids = tuple(entry for entry in value if type(entry) is int and 0 <= entry <= _MAX_TOKEN_ID)
    if len(ids) != len(value):
        raise invalid(_ONE_KIND)
    return ids


_Text = Annotated[str, Field(min_length=1), TEXT_LIMIT]
_Texts = Annotated[list[_Text], Field(min_length=1), _INPUTS]
_Ids = Annotated[list[TokenId], Field(min_length=1), _INPUT_IDS]
_ManyIds = Annotated[list[_Ids], Field(min_length=1), _INPUTS]
Inputs = Annotated[
    tuple[PoolingInput, ...],
    PlainValidator(_read_inputs, json_schema_input_type=_Text | _Texts | _Ids | _ManyIds),
]


class EmbeddingsBody(PoolingBody):
    """The parameters of embeddings."""

    input: Inputs = parameter(
        "A text, several texts, token ids, or several lists of token ids.",
        "OAVF",
        wrong=[
            (5, _NO_INPUT),
            ([], "must not be empty"),
            (["a", ""], _EMPTY),
            ([[]], "must not have an empty array of token ids"),
            (["a", 1], _ONE_KIND),
            ([1, True], _ONE_KIND),
            ([-1], _ONE_KIND),
        ],
        is_required=True,
    )
    encoding_format: Literal["float", "base64"] | None = parameter(
        "`base64`: each vector as the base64 text of 32-bit floats, little-endian. Default: "
        "`float`.",
        "OAVF",
    )
    dimensions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = parameter(
        "The first numbers of each vector, scaled to length 1 again. Default: all numbers.",
        "AVF",
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
            entry = {"object": "embedding", "index": index, "embedding": self._written(vector)}
            yield json_bytes(entry)
        yield b"]," + json_bytes({"model": model, "usage": usage(result.num_tokens)})[1:]

    def _written(self, vector: bytes) -> str | list[float]:
        if self.is_base64:
            return b64encode(vector).decode("ascii")
        return array("f", vector).tolist()


def parse_embeddings(body: bytes) -> EmbeddingsExchange:
    """Read the body of `/embeddings`. Raises `InvalidRequest`."""
    wire, unused = read_pooling_body(Endpoint.EMBEDDINGS, EmbeddingsBody, body)
    return EmbeddingsExchange(wire.request(unused), wire.encoding_format == "base64")
