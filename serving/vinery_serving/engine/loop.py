"""The engine's only thread, whatever its model does: read the socket, step, report."""

import os
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from vinery_serving.core import errors
from vinery_serving.engine.kinds import EngineKind
from vinery_serving.engine.log import EngineLogFile
from vinery_serving.engine.supervision import Lifeline
from vinery_serving.transport import messages
from vinery_serving.transport.server import Incoming, SocketServer

# An idle engine computes a token this often, to know that it still can.
PROBE_INTERVAL_S: Final = 10.0
_DRAIN_WAIT_S: Final = 0.02  # how long a draining engine waits for requests on their way
_CHECK_INTERVAL_S: Final = 0.2  # deadlines are minutes long, so not every step checks them


class EngineLoop:
    """Owns the socket, and lets the kind work."""

    def __init__(
        self,
        kind: EngineKind[Any],
        lifeline: Lifeline | None = None,
        log_file: EngineLogFile | None = None,
    ) -> None:
        self._kind = kind
        self._liveness = kind.liveness
        self._lifeline = lifeline or Lifeline()
        self._log_file = log_file
        self._next_check_at = 0.0
        self._is_stopping = False

    def run(self, listener: socket.socket, on_listening: Callable[[SocketServer], None]) -> None:
        """Serve on a socket of `transport.server.bound` until `stop`, or until no node is left.
        Raises PipelineBroken if the process must be replaced."""
        kind = self._kind
        server = SocketServer(listener, kind.config.socket_key, self._hello)
        kind.open(server)
        on_listening(server)
        self._liveness.is_listening = True
        try:
            while not (self._is_stopping or self._lifeline.has_ended):
                self.turn(server)
            kind.finish()
            server.broadcast(messages.Leaving())
        finally:
            kind.close()
            server.close()

    def stop(self) -> None:
        """Leave `run` soon. Safe to call from a signal handler."""
        self._is_stopping = True

    def drain(self) -> None:
        """Finish what there is, let gateways send no more, and leave `run`. Safe to call from a
        signal handler."""
        self._liveness.must_drain = True

    def turn(self, server: SocketServer) -> None:
        """Take what has come, and do one step. Raises PipelineBroken."""
        kind, liveness = self._kind, self._liveness
        liveness.promise()
        wait_s = kind.wait_s
        received = server.poll(min(wait_s, _DRAIN_WAIT_S) if liveness.must_drain else wait_s)
        for incoming in received:
            self.receive(incoming)
        if liveness.must_drain:
            is_busy = kind.is_busy or bool(received)
            self._is_stopping |= liveness.has_drained(server, is_busy=is_busy)
        self._check()
        if not kind.step(server):
            last = kind.last_token_at
            if last is None or time.monotonic() - last > PROBE_INTERVAL_S:
                kind.probe()
        liveness.show(is_busy=kind.is_busy)

    def receive(self, incoming: Incoming) -> None:
        """Take one message, or the end of a connection."""
        connection, message = incoming
        match message:
            case None:
                self._lifeline.discard(connection)
                self._kind.disconnect(connection)
            case messages.Cancel(id=id_, num_used=num_used):
                self._kind.cancel(connection, id_, num_used)
            case messages.Ping(nonce=nonce):
                connection.send(messages.Pong(nonce, self._kind.stats()))
            case messages.Keep():
                self._lifeline.add(connection)
            case _ if self._kind.receive(connection, message):
                pass
            case messages.TestPictures() | messages.Arriving():
                pass  # only models with pictures, or with a low tier, are asked
            case _:
                code = errors.InvalidRequest.code or ""
                connection.send(messages.Rejected(message.id, code, self._kind.REFUSAL))

    def _check(self) -> None:
        now = time.monotonic()
        if now >= self._next_check_at:
            self._next_check_at = now + _CHECK_INTERVAL_S
            if self._log_file is not None:
                self._log_file.check()
            self._kind.expire(now)

    def _hello(self) -> messages.Hello:
        config = self._kind.config
        return messages.Hello(
            protocol_version=messages.PROTOCOL_VERSION,
            pid=os.getpid(),
            max_context=config.max_context,
            max_running=config.options.max_running,
            digest=config.digest,
            is_draining=self._liveness.is_draining,
            **self._kind.greet(),
        )
