"""The consumer of `/embeddings`, `/rerank` and `/score`."""

import asyncio
from collections.abc import Set

from django.conf import settings

from vinery_accounts.keys.table import Caller
from vinery_serving.core.endpoints import PoolingEndpoint
from vinery_serving.core.tasks import TASKS_OF_ENDPOINTS, Task
from vinery_serving.flow.directory import Engine
from vinery_serving.flow.pooling import PreparedPooling, pool
from vinery_serving.http.consumers import (
    PARTS_AT_ONCE,
    RecordedConsumer,
)
from vinery_serving.http.edge import (
    REQUEST_ID,
)
from vinery_serving.http.notices import report_unused
from vinery_serving.intake.reading import (
    Head,
    read_pooling,
)
from vinery_serving.protocols.pooling.common import PoolingExchange
from vinery_serving.requests.record import RequestRecord
from vinery_serving.runtime.runtime import Runtime


class PoolingConsumer(RecordedConsumer):
    """Answers `/embeddings`, `/rerank` and `/score`."""

    def __init__(self, runtime: Runtime, endpoint: PoolingEndpoint) -> None:
        super().__init__(runtime, endpoint)
        self._endpoint = endpoint

    async def _serve(self, record: RequestRecord, caller: Caller, body: bytes) -> None:
        exchange, prepared = await self._prepare(record, caller, body)
        del body
        await record.reservation.reserve_input(
            prepared.engine.entry.name, prepared.draft.num_tokens
        )
        result = await pool(prepared)
        model, request_id = prepared.engine.entry.name, self.scope[REQUEST_ID]
        parts: list[bytes] = []
        for number, part in enumerate(exchange.body(result, model, request_id), 1):
            parts.append(part)
            if number % PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        answer = b"".join(parts)
        record.add_answer(answer)
        headers = record.reservation.headers  # before the record is settled
        record.succeed()
        await self._send_json(answer, headers)

    async def _prepare(
        self, record: RequestRecord, caller: Caller, body: bytes
    ) -> tuple[PoolingExchange, PreparedPooling]:
        """Read the body, admit the request, and tokenize its texts."""
        engine: Engine | None = None

        async def engine_of(head: Head) -> Engine:
            nonlocal engine
            model = self._deployment or head.model
            record.admit(model=model or "")
            replaced = () if head.model in (None, model) else ("model",)
            report_unused(head.unused, self.scope, self._runtime.traffic, *replaced)
            engine = self._engine(caller, model)
            record.name_model(engine.entry.name)
            return engine

        workers, endpoint = self._runtime.workers, self._endpoint
        exchange, draft = await read_pooling(workers, self._owner, endpoint, body, engine_of)
        assert engine is not None
        record.meter.num_prompt_tokens = draft.num_tokens
        prepared = PreparedPooling(
            draft,
            engine,
            record.meter,
            deadline_s=settings.VINERY_REQUEST_TIMEOUT_S,
            request_id=self.scope[REQUEST_ID],
            lane=(caller.organization_id or 0, caller.key_id or 0),
        )
        return exchange, prepared

    @property
    def _tasks(self) -> Set[Task]:
        return TASKS_OF_ENDPOINTS[self._endpoint]
