"""The kinds of engines: one class in a file of this room for each, and its row in `engine.config`.
`engine.loop` calls all methods, on the only thread of the engine process."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

from vinery_serving.core import errors
from vinery_serving.engine.config import EngineConfig
from vinery_serving.engine.supervision import Liveness
from vinery_serving.transport.messages import EngineStats, ToEngine
from vinery_serving.transport.server import Connection, SocketServer

# How long an idle engine waits for messages. Each time that it wakes up takes 0.3 ms.
CALM_WAIT_S = 1.0


class Request(Protocol):
    """A request of a gateway that has not ended. `arrived_at` is of the monotonic clock."""

    @property
    def connection(self) -> Connection | None: ...
    @property
    def arrived_at(self) -> float: ...
    @property
    def deadline_s(self) -> float: ...  # from its arrival
    @property
    def key(self) -> tuple[int, int]: ...  # see `key_of`
    def reject(self, code: str | None, message: str) -> None: ...


RequestT = TypeVar("RequestT", bound=Request)


def key_of(connection: Connection, id_: int) -> tuple[int, int]:
    """Return the key of a request: ids are unique on a connection."""
    return id(connection), id_


class EngineKind(ABC, Generic[RequestT]):
    """A loaded model, and the requests that it has."""

    REFUSAL: ClassVar[str]  # the message to a gateway that sends a request of another kind

    def __init__(self, config: EngineConfig, liveness: Liveness) -> None:
        self.config = config
        self.liveness = liveness
        self.requests: dict[tuple[int, int], RequestT] = {}  # by their keys
        self.last_token_at: float | None = None  # of the monotonic clock

    @classmethod
    def prepare(cls, config: EngineConfig) -> None:
        """The engine will be confined: a kind may start processes and import from any folder.
        Raises OSError or RuntimeError."""

    @classmethod
    @abstractmethod
    def load(cls, config: EngineConfig, liveness: Liveness) -> Self:
        """Load the model, and compute its first token. Raises RuntimeError or OSError."""

    def open(self, server: SocketServer) -> None:
        """The engine listens. A kind may watch descriptors of its own."""

    def close(self) -> None:
        """The engine listens no more."""

    # Requests

    @abstractmethod
    def receive(self, connection: Connection, message: ToEngine) -> bool:
        """Take a request, or what belongs to one. Returns whether it is a message of this kind."""

    @abstractmethod
    def drop(self, request: RequestT) -> None:
        """End a request without an answer."""

    def cancel(self, connection: Connection, id_: int, num_used: int) -> None:
        """Drop a request, if it has not ended. The client has used so many of its tokens."""
        if (request := self.requests.get(key_of(connection, id_))) is not None:
            self.drop(request)

    def disconnect(self, connection: Connection) -> None:
        """Drop the requests of a connection that has ended."""
        for request in [each for each in self.requests.values() if each.connection is connection]:
            self.drop(request)

    def expire(self, now: float) -> None:
        """Refuse the requests whose deadline is over."""
        for request in list(self.requests.values()):
            if request.arrived_at + request.deadline_s < now:
                self.drop(request)
                text = f"The request ran longer than {request.deadline_s:g} s."
                request.reject(errors.DeadlineExceeded.code, text)

    @property
    def is_busy(self) -> bool:
        """Whether the engine must finish something before its end."""
        return bool(self.requests)

    # Work

    @property
    def wait_s(self) -> float:
        """How long to wait for messages; 0: there is something to do."""
        return CALM_WAIT_S

    @abstractmethod
    def step(self, server: SocketServer) -> bool:
        """Do a step of the work, and send the results. Returns whether there was work. Raises
        PipelineBroken."""

    @abstractmethod
    def probe(self) -> None:
        """Compute a token, now or in the next step, to know that the engine still can. Raises
        PipelineBroken."""

    def finish(self) -> None:
        """Send what is left: the engine ends as planned."""

    # Reports

    def greet(self) -> Mapping[str, Any]:
        """Return the members of `Hello` that only this kind has, for a new connection."""
        return {}

    @abstractmethod
    def stats(self) -> EngineStats: ...

    def report(self) -> Mapping[str, Any]:
        """Return what the node reads beside the event `ready`."""
        return {}


def kind_named(name: str) -> type[EngineKind[Any]]:
    """Return the class `KIND` of a file of this room. The file has large imports."""
    return cast("type[EngineKind[Any]]", import_module(f"{__name__}.{name}").KIND)
