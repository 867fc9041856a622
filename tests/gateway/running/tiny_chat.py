"""The reference chat model, without an engine process or with a scripted engine."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from tests.fakes.engine import KEY, Gateway, InMemoryEngine
from vinery_serving.core import request as req
from vinery_serving.core.errors import ServingError
from vinery_serving.core.events import Event, Failed, TextDelta
from vinery_serving.core.request import Sampling
from vinery_serving.engine.options import EngineOptions
from vinery_serving.gateway.engines.directory import Engine
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.engines.models import ModelEntry
from vinery_serving.gateway.engines.replicas import Replicas
from vinery_serving.gateway.engines.suspects import Quarantine, Suspects
from vinery_serving.gateway.preparing.prepare import prepare
from vinery_serving.gateway.preparing.prepared import Draft, Origin, PreparedRequest
from vinery_serving.gateway.running.generate import run
from vinery_serving.prompting.assets import ModelAssets, Prompt
from vinery_serving.transport.client import EngineClient
from vinery_serving.transport.messages import Submit
from vinery_serving.transport.sockets import UnixAddress
from vinery_serving.transport.waiting import WaitingRequests

TINY_CHAT = Path(__file__).resolve().parents[3] / "models" / "tiny-chat"
ASSETS = ModelAssets.load(TINY_CHAT)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELLO = req.GenerationRequest(
    endpoint=req.Endpoint.CHAT,
    model="tiny-chat",
    prompt=req.Conversation((req.Message(req.Role.USER, (req.TextPart("Hello!"),)),)),
)
RAW = req.GenerationRequest(req.Endpoint.COMPLETIONS, "tiny-chat", req.RawPrompts(("Hi there",)))
SUBMIT = Submit(id=0, prompt_ids=b"", sampling=Sampling(), max_new_tokens=9, deadline_s=9.0)


def new_engine(folder: Path, assets: ModelAssets = ASSETS, **options: Any) -> Engine:
    """An engine whose socket is in `folder`. No connection is open."""
    entry = ModelEntry(1, "tiny-chat", TINY_CHAT, EngineOptions(**options), True, NOW, NOW)
    client = Replicas(lambda _: EngineClient(UnixAddress(folder / "e.sock"), KEY))
    waiting = WaitingRequests(folder, KEY)
    return Engine(entry, assets, client, Quarantine(), Suspects(), waiting)


async def prepared_of(
    engine: Engine, request: req.GenerationRequest = HELLO, **values: Any
) -> PreparedRequest:
    draft = prepare(request, engine, Origin(60, **values))
    return PreparedRequest.of(draft, engine, Meter(), "ab" * 12)


def in_memory(
    engine: InMemoryEngine,
    request: req.GenerationRequest = RAW,
    *,
    submit: Submit = SUBMIT,
    meter: Meter | None = None,
) -> PreparedRequest:
    """A request to an engine without a socket."""
    prompts, submits, its_engine = (Prompt((1,)),), (submit,) * request.n, cast(Engine, engine)
    meter = meter or Meter()
    draft = Draft(request, prompts, submits, request.n, tokens=meter.tokens, media=meter.media)
    return PreparedRequest.of(draft, its_engine, meter, "t")


async def accepted(gateway: Gateway) -> Submit:
    """The next request to a scripted engine, which accepts it."""
    submit = await gateway.receive_submit()
    gateway.accept(submit)
    return submit


async def events_of(prepared: PreparedRequest) -> list[Event]:
    """All events; an error after the first of them is an event, too, as in a stream."""
    events: list[Event] = []
    try:
        async for batch in run(prepared):
            events += batch
    except ServingError as error:
        if not events:
            raise
        events.append(Failed(error))
    return events


def texts_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def ids_of(text: str) -> list[int]:
    return ASSETS.tokenizer.encode(text)
