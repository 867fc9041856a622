"""`/embeddings` with OpenAI's body and answer and the parameters that vLLM, TEI and Cohere add,
`/rerank` with the bodies and answers of Cohere and Jina, and `/score` with vLLM's."""

from array import array
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import UNSET, UnsetType
from pydantic import BeforeValidator, Field, PlainValidator

from vinery_serving.core import field_limits, pooling
from vinery_serving.core.errors import MissingParameter
from vinery_serving.core.request import Unused
from vinery_serving.core.tasks import Endpoint
from vinery_serving.protocols.common import generation, reading
from vinery_serving.protocols.common.body_fields import read_body
from vinery_serving.protocols.common.encoding import Answer, json_bytes

_ALL_THAT_FIT: Final = -1  # of vLLM: as many tokens as the model takes
Side = Literal["NONE", "START", "END"]  # Cohere's words for the side that is cut, in upper case


def _check_truncate(value: object) -> object:
    """One error for both types: a union would give two."""
    if not (value is None or isinstance(value, bool) or value in get_args(Side)):
        raise reading.invalid("must be true, false, 'NONE', 'START' or 'END'")
    return value


class PoolingBody(reading.Wire):
    """The parameters of all three endpoints."""

    model: reading.ModelName | None = reading.parameter(reading.MODEL)
    user: reading.Identifier | None = reading.parameter(
        "The end user, for limits and reports of usage.", changes_nothing=True
    )
    truncate: Annotated[bool | Side, BeforeValidator(_check_truncate)] | None = reading.parameter(
        "A text that is too long is refused (false, `NONE`, the default), or cut at the end (true, "
        "`END`) or at the start (`START`)."
    )
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = reading.parameter(
        "The side that is cut. Default: `right`."
    )
    truncate_prompt_tokens: Annotated[int, Field(ge=_ALL_THAT_FIT, le=2**31 - 1)] | None = (
        reading.parameter("Cuts each text to this many tokens; -1: to as many as the model takes.")
    )
    truncation_side: Literal["left", "right"] | None = reading.parameter(
        "The side that is cut. Default: `right`."
    )
    priority: generation.Priority | None = reading.parameter(
        "No effect: the keys take turns.", changes_nothing=True
    )
    request_id: generation.RequestId | None = reading.parameter(
        "The client's id of the request.", changes_nothing=True
    )
    cache_salt: reading.Identifier | None = reading.parameter(
        "Vectors and scores are not cached.", changes_nothing=True
    )

    def _request(
        self,
        endpoint: Endpoint,
        inputs: tuple[pooling.PoolingInput, ...],
        param: str,
        unused: Unused,
        **options: Any,
    ) -> pooling.PoolingRequest:
        """`inputs` are the values of the field `param`. Raises `InvalidRequest`."""
        return pooling.PoolingRequest(
            endpoint,
            self.model,
            inputs,
            param=param,
            truncation=self._truncation(),
            unused=unused,
            sent=reading.sent_parameters(self),
            end_user=self.user or "",
            **options,
        )

    def _truncation(self) -> pooling.Truncation | None:
        """Raises `InvalidRequest` for parameters that contradict each other."""
        tokens, truncate = self.truncate_prompt_tokens, self.truncate
        if tokens == 0:
            raise reading.refusal(
                "truncate_prompt_tokens", "must be at least 1, or -1 for as many as the model takes"
            )
        if tokens is not None and truncate in (False, "NONE"):
            raise reading.refusal(
                "truncate", "contradicts `truncate_prompt_tokens`: send one of them"
            )
        if tokens is None and truncate in (None, False, "NONE"):
            return None
        side = self.truncation_side or (self.truncation_direction or "").lower()
        if side and truncate in ("START", "END") and (side == "left") != (truncate == "START"):
            raise reading.refusal("truncate", "names another side than the other parameter")
        keeps_start = truncate != "START" and side != "left"
        limit = None if tokens in (None, _ALL_THAT_FIT) else tokens
        return pooling.Truncation(limit, keeps_start=keeps_start)


class PoolingUsage(Answer, kw_only=True):
    prompt_tokens: int
    total_tokens: int


def usage(num_tokens: int) -> PoolingUsage:
    return PoolingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)


_ROLES: Final = {
    "query": pooling.TextRole.QUERY,
    "search_query": pooling.TextRole.QUERY,
    "document": pooling.TextRole.DOCUMENT,
    "passage": pooling.TextRole.DOCUMENT,
    "search_document": pooling.TextRole.DOCUMENT,
}


def _read_inputs(value: object) -> tuple[pooling.PoolingInput, ...]:
    inputs = generation.read_prompts(value)
    if "" in inputs:
        raise reading.invalid("must not have an empty text")
    return inputs


_Text = Annotated[str, Field(min_length=1), reading.TEXT_LIMIT]
_Texts = Annotated[list[_Text], Field(min_length=1), reading.Limited(field_limits.PROMPTS)]
Inputs = Annotated[
    tuple[pooling.PoolingInput, ...],
    PlainValidator(
        _read_inputs, json_schema_input_type=_Text | _Texts | generation.Ids | generation.ManyIds
    ),
]


class EmbeddingsBody(PoolingBody):
    """The parameters of embeddings."""

    input: Inputs = reading.parameter(
        "A text, several texts, token ids, or several lists of token ids.", is_required=True
    )
    encoding_format: Literal["float", "base64"] | None = reading.parameter(
        "`base64`: each vector as the base64 text of 32-bit floats, little-endian. Default: "
        "`float`."
    )
    dimensions: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = reading.parameter(
        "The first numbers of each vector, scaled to length 1 again. Default: all numbers."
    )
    input_type: (
        Literal["query", "document", "passage", "search_query", "search_document"] | None
    ) = reading.parameter(
        "The kind of the texts, for models with a text before queries or documents."
    )
    prompt_name: reading.Identifier | None = reading.parameter(
        "The name of a text before each input in the model's config_sentence_transformers.json."
    )

    def request(self, unused: Unused) -> pooling.PoolingRequest:
        """Raises `InvalidRequest`."""
        request = self._request(
            Endpoint.EMBEDDINGS,
            self.input,
            "input",
            unused,
            dimensions=self.dimensions,
            role=None if self.input_type is None else _ROLES[self.input_type],
            prompt_name=self.prompt_name,
        )
        reading.refuse_long("input", request.num_chars)
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


COHERES_DOCUMENT_TOKENS: Final = 4096  # the default of version 2 of Cohere's API
_LIMIT: Final = reading.Limited(field_limits.PROMPTS)
_NO_DOCUMENTS: Final = "must be an array of strings, or of objects with `text`"


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the client sent it. `fields` are all members of an object."""

    text: str
    fields: Mapping[str, Any]  # empty for a plain text


def _read_documents(value: object) -> tuple[Document, ...]:
    if not isinstance(value, list):
        raise reading.invalid(_NO_DOCUMENTS)
    if not value:
        raise reading.invalid("must not be empty")
    _LIMIT.check(value)
    return tuple(map(_read_document, value))


def _read_document(value: object) -> Document:
    if isinstance(value, str):
        return Document(value, {})
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return Document(value["text"], value)
    raise reading.invalid(_NO_DOCUMENTS)


class _DocumentObject(reading.Wire):
    """The schema of a document that is an object."""

    text: str


_Documents = Annotated[list[reading.Text | _DocumentObject], Field(min_length=1), _LIMIT]
Documents = Annotated[
    tuple[Document, ...], PlainValidator(_read_documents, json_schema_input_type=_Documents)
]


class RerankBody(PoolingBody):
    """The parameters of rerank."""

    query: reading.Text = reading.parameter("What the documents are ranked for.", is_required=True)
    documents: Documents = reading.parameter(
        "Texts, or objects with `text`. Other members of an object have no effect; "
        "`return_documents` repeats them, too.",
        is_required=True,
    )
    top_n: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = reading.parameter(
        "The number of documents in the answer, the most relevant first. Default: all."
    )
    return_documents: bool | None = reading.parameter(
        "Whether the answer repeats the documents. Default: false."
    )

    max_tokens_per_doc: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = reading.parameter(
        "Cuts each document to this many tokens, without the tokens of the query. Default under "
        f"`/v2`: {COHERES_DOCUMENT_TOKENS}, as in Cohere's API; elsewhere: none."
    )

    def request(self, unused: Unused, max_document_tokens: int | None) -> pooling.PoolingRequest:
        """Raises `InvalidRequest`."""
        pairs = tuple(pooling.TextPair(self.query, each.text) for each in self.documents)
        reading.refuse_long(
            "documents", len(self.query) + sum(len(each.text) for each in self.documents)
        )
        limit = self.max_tokens_per_doc or max_document_tokens
        return self._request(Endpoint.RERANK, pairs, "documents", unused, max_document_tokens=limit)


class RankedDocument(Answer, kw_only=True):
    """A document, and how relevant it is: 0 to 1."""

    index: Annotated[int, Field(description="In `documents` of the request.")]
    relevance_score: float
    document: Mapping[str, Any] | UnsetType = UNSET


class ApiVersion(Answer, kw_only=True):
    """The version of Cohere's API that the answer has."""

    version: str = "2"


class BilledTokens(Answer, kw_only=True):
    """The tokens of all texts, with Cohere's names."""

    input_tokens: int
    output_tokens: int = 0


class RerankMeta(Answer, kw_only=True):
    """Cohere's data about the answer."""

    api_version: ApiVersion
    tokens: BilledTokens


class Rerank(Answer, kw_only=True):
    """The most relevant documents, the best one first."""

    id: str
    model: str
    object: Literal["list"] = "list"
    results: list[RankedDocument]
    usage: PoolingUsage
    meta: RerankMeta


class Score(Answer, kw_only=True):
    """How well two texts fit: 0 to 1."""

    index: int
    object: Literal["score"] = "score"
    score: float


class Scores(Answer, kw_only=True):
    id: str
    object: Literal["list"] = "list"
    model: str
    data: list[Score]
    usage: PoolingUsage


_SOURCES: Final = (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"))


class ScoreBody(PoolingBody):
    """The parameters of score: one text and several, or as many of each."""

    text_1: generation.Texts | None = reading.parameter("One text, or several.")
    text_2: generation.Texts | None = reading.parameter(
        "The texts beside `text_1`: as many, or any number beside one text."
    )
    queries: generation.Texts | None = reading.parameter("The same as `text_1`.")
    documents: generation.Texts | None = reading.parameter("The same as `text_2`.")
    data_1: generation.Texts | None = reading.parameter("The same as `text_1`.")
    data_2: generation.Texts | None = reading.parameter("The same as `text_2`.")

    def request(self, unused: Unused) -> pooling.PoolingRequest:
        """Raises `InvalidRequest`."""
        names, first, second = self._texts()
        if len(first) == 1:
            first *= len(second)
        if len(first) != len(second):
            raise reading.refusal(
                names[1],
                f"has {len(second)} texts beside {len(first)}: send as many, or one `{names[0]}`",
            )
        pairs = tuple(map(pooling.TextPair, first, second))
        reading.refuse_long(names[1], sum(map(len, first)) + sum(map(len, second)))
        return self._request(Endpoint.SCORE, pairs, names[1], unused)

    def _texts(self) -> tuple[tuple[str, str], tuple[str, ...], tuple[str, ...]]:
        given = [names for names in _SOURCES if any(getattr(self, each) for each in names)]
        names = given[0] if given else _SOURCES[0]
        if len(given) > 1:
            raise reading.refusal(given[1][0], f"cannot go with `{names[0]}`: send one of them")
        first, second = (getattr(self, each) for each in names)
        for name, texts in zip(names, (first, second), strict=True):
            if texts is None:
                raise MissingParameter(f"`{name}` is required.", param=name)
        return names, first, second


@dataclass(frozen=True, slots=True)
class PoolingExchange:
    request: pooling.PoolingRequest
    is_base64: bool = False
    top_n: int | None = None
    documents: tuple[Document, ...] | None = None  # None: not in the answer

    def body(
        self, draft: pooling.PoolingDraft, vectors: Iterable[bytes], model: str, request_id: str
    ) -> Iterator[bytes]:
        """Yield the parts of the answer's JSON. Each part takes little time."""
        used = usage(draft.num_tokens)
        if self.request.endpoint is Endpoint.EMBEDDINGS:
            yield b'{"object":"list","data":['
            for index, vector in enumerate(vectors):
                written = json_bytes(Embedding(index=index, embedding=self._written(vector)))
                yield b"," + written if index else written
            yield b"]," + json_bytes({"model": model, "usage": used})[1:]
            return
        scores = [array("f", vector)[0] for vector in vectors]
        if self.request.endpoint is Endpoint.SCORE:
            data = [Score(index=index, score=score) for index, score in enumerate(scores)]
            yield json_bytes(Scores(id=request_id, model=model, data=data, usage=used))
            return
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: self.top_n]
        billed = BilledTokens(input_tokens=draft.num_tokens)
        # The members of Cohere's answers and of Jina's together.
        answer = Rerank(
            id=request_id,
            model=model,
            results=[self._ranked(index, scores[index]) for index in order],
            usage=used,
            meta=RerankMeta(api_version=ApiVersion(), tokens=billed),
        )
        yield json_bytes(answer)

    def _written(self, vector: bytes) -> str | list[float]:
        return b64encode(vector).decode("ascii") if self.is_base64 else array("f", vector).tolist()

    def _ranked(self, index: int, score: float) -> RankedDocument:
        ranked = RankedDocument(index=index, relevance_score=score)
        if self.documents is not None:
            document = self.documents[index]
            ranked.document = document.fields or {"text": document.text}
        return ranked


def parse_pooling(endpoint: Endpoint, body: bytes, *, is_v2: bool = False) -> PoolingExchange:
    """Read the body of a request. Under `/v2`, `max_tokens_per_doc` has Cohere's default.
    Raises `InvalidRequest` with the path of the field in `param`."""
    if endpoint is Endpoint.EMBEDDINGS:
        texts, unused = read_body(endpoint, EmbeddingsBody, body)
        return PoolingExchange(texts.request(unused), texts.encoding_format == "base64")
    if endpoint is Endpoint.SCORE:
        pairs, unused = read_body(endpoint, ScoreBody, body)
        return PoolingExchange(pairs.request(unused))
    assert endpoint is Endpoint.RERANK, f"{endpoint} has no vectors"
    ranked, unused = read_body(endpoint, RerankBody, body)
    documents = ranked.documents if ranked.return_documents else None
    limit = COHERES_DOCUMENT_TOKENS if is_v2 else None
    return PoolingExchange(ranked.request(unused, limit), top_n=ranked.top_n, documents=documents)
