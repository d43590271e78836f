"""Figures for Prometheus: their text, and a server that answers one page with them.

The text is that of https://prometheus.io/docs/instrumenting/exposition_formats/ (text format, 0.0.4). It is
written by hand, since a board has nothing but the standard library.
"""

from __future__ import annotations

import ipaddress
import math
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Tuple

from device_agent.contract.text import printable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"
PAGE = "/metrics"
# A client that sends nothing, or does not read, is let go.
_SILENCE_S = 10.0
_MOST_AT_ONCE = 8
_LABEL_CHARACTERS = 200


class Metric(NamedTuple):
    """A figure with its values.

    Attributes:
        name: such as "edgetlm_board_temperature_celsius".
        kind: "gauge" or "counter".
        text: what it is, for people.
        values: labels and value, once for each set of labels.
    """

    name: str
    kind: str
    text: str
    values: List[Tuple[Mapping[str, str], float]]


def exposition(metrics: Iterable[Metric]) -> str:
    """The figures as text; a value that is no number is left out, and so is a figure without values."""
    lines: List[str] = []
    for metric in metrics:
        values = [(labels, value) for labels, value in metric.values if math.isfinite(value)]
        if not values:
            continue
        lines.append("# HELP %s %s" % (metric.name, _escaped(metric.text)))
        lines.append("# TYPE %s %s" % (metric.name, metric.kind))
        for labels, value in values:
            inner = ",".join('%s="%s"' % (name, _label(text)) for name, text in labels.items())
            lines.append("%s%s %s" % (metric.name, "{%s}" % inner if inner else "", repr(float(value))))
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return _escaped(printable(text, _LABEL_CHARACTERS)).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


class MetricsServer(ThreadingHTTPServer):
    """Answers GET /metrics with the figures of that moment, and everything else with an error.

    Args:
        address: to listen on; `LOOPBACK` unless more is asked for.
        port: 0 for any.
        collect: gives the figures; an `OSError` or `ValueError` of it is the answer 503 with its text.

    Raises:
        OSError: it cannot listen there.
        ValueError: that is no address.
    """

    daemon_threads = True
    request_queue_size = 8

    def __init__(self, address: str, port: int, collect: Callable[[], Iterable[Metric]]) -> None:
        self.address_family = (
            socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
        )
        self.collect = collect
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__((address, port), _Page)

    @property
    def port(self) -> int:
        """The TCP port that the server listens on."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Binds the socket, without the look-up of a name that the base class makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in a thread, or closes it where as many as may be are served."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # there is no thread left
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread of one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that went away."""


class _Page(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = _SILENCE_S
    server_version = "EdgeTLM"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers a scrape."""
        if self.path.partition("?")[0] != PAGE:
            self._answer(404, "the figures are at %s\n" % PAGE)
            return
        try:
            text = exposition(self.server.collect())
        except (OSError, ValueError) as error:
            self._answer(503, printable(error) + "\n")
            return
        self._answer(200, text)

    def _answer(self, code: int, text: str) -> None:
        data = text.encode("utf-8")
        self.send_response(code)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: a scrape every few seconds is no event."""
