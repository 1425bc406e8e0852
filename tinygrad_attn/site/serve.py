"""Floor 7.1. A server of a folder, for this machine alone."""

from __future__ import annotations

import functools
import http.server
import sys
from pathlib import Path
from typing import Any


class Quiet(http.server.SimpleHTTPRequestHandler):
    """It keeps its log to itself."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """It minds no reader who leaves, and shares its port with nobody."""

    allow_reuse_address = sys.platform != "win32"           # where it would mean to share one

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def server(folder: Path, port: int) -> Server:
    """A server that is bound to the port, or to any that is free if it is 0, and does not serve yet. A port that cannot
    be had is a ValueError."""
    try:
        return Server(("127.0.0.1", port), functools.partial(Quiet, directory=str(folder)))
    except (OSError, OverflowError) as error:
        raise ValueError(f"--port {port}: {getattr(error, 'strerror', None) or error}") from None
