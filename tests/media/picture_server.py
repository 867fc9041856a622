"""A web server with a picture and a page."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO

from PIL import Image


def picture(width: int = 40, height: int = 30) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "PNG")
    return file.getvalue()


@contextmanager
def serving_a_picture(data: bytes) -> Iterator[int]:
    """The port of a server on 127.0.0.1: `/page` is HTML, and every other path is the picture."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_text = self.path.startswith("/page")
            body = b"<html></html>" if is_text else data
            self.send_response(200)
            self.send_header("content-type", "text/html" if is_text else "image/png")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
