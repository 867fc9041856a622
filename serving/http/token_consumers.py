"""The doors to a model's tokenizer, beside those to generation. Nothing here is metered."""

from __future__ import annotations

from accounts.keys.table import Caller
from serving.core.request import DIALECTS
from serving.flow.rendering import count_tokens, detokenize, off_loop, tokenize
from serving.http.consumers import JSON, JsonConsumer
from serving.http.edge import send_whole
from serving.protocols.responses.exchange import count_body, parse_count
from serving.protocols.tokens import parse_detokenize, parse_tokenize


class TokenizeConsumer(JsonConsumer):
    """Answers `POST /tokenize`, with vLLM's bodies or with OVMS's."""

    async def _answer(self, caller: Caller, body: bytes) -> None:
        exchange = parse_tokenize(body)
        engine = self._engine(caller, exchange.request.model)
        tokenized = await tokenize(exchange.request, engine)
        num_tokens = sum(map(len, tokenized.token_ids))
        answer = await off_loop(lambda: exchange.body(tokenized), num_tokens)
        await send_whole(self.base_send, 200, JSON, answer)


class DetokenizeConsumer(JsonConsumer):
    """Answers `POST /detokenize`, as vLLM does."""

    async def _answer(self, caller: Caller, body: bytes) -> None:
        exchange = parse_detokenize(body)
        engine = self._engine(caller, exchange.model)
        text = await detokenize(exchange.token_ids, engine)
        answer = await off_loop(lambda: exchange.body(text), len(text))
        await send_whole(self.base_send, 200, JSON, answer)


class InputTokensConsumer(JsonConsumer):
    """Answers `POST {tree}/responses/input_tokens`, as OpenAI does."""

    async def _answer(self, caller: Caller, body: bytes) -> None:
        dialect = DIALECTS[self.scope["url_route"]["kwargs"]["tree"]]
        request = parse_count(body, dialect)
        num_tokens = await count_tokens(request, self._engine(caller, request.model))
        await send_whole(self.base_send, 200, JSON, count_body(num_tokens))
