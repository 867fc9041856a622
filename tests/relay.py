"""A way to a server on loopback that a test can cut, block and mend."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Relay:
    """Listens on a free port and passes everything on to the server of a URL."""

    def __init__(self, url: str, address: str = "127.0.0.1") -> None:
        self._url = urlsplit(url)
        self._address = address
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._listening = self._listen(0)
        self._port = self._listening.getsockname()[1]

    @property
    def url(self) -> str:
        """The server's, by way of this relay."""
        user = f"{self._url.username}@" if self._url.username else ""
        return self._url._replace(netloc=f"{user}{self._address}:{self._port}").geturl()

    def cut(self) -> None:
        """Connections break, and new ones are refused."""
        # A thread in `accept` would hold on to the socket that is only closed.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def join(self) -> None:
        """After `cut`: new connections get through."""
        self._listening = self._listen(self._port)

    def lead_to(self, url: str) -> None:
        """New connections get to another server."""
        self._url = urlsplit(url)

    def block(self) -> None:
        """Nothing breaks, and nothing arrives."""
        self._open.clear()

    def unblock(self) -> None:
        """After `block`: what was held up arrives."""
        self._open.set()

    def _listen(self, port: int) -> socket.socket:
        listening = socket.create_server((self._address, port))
        threading.Thread(target=self._serve, args=(listening,), daemon=True).start()
        return listening

    def _serve(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((self._url.hostname, self._url.port or 5432))
        except OSError:  # the server is gone
            client.close()
            return
        self._ends += (client, server)
        back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
        back.start()
        self._pass(client, server)
        back.join()
        client.close()
        server.close()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
