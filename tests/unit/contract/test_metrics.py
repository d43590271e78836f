"""Figures for Prometheus: their text by its rules, and a server that nobody keeps from answering others."""

from __future__ import annotations

import http.client
import math
import re
import socket
import threading
from collections.abc import Iterator

import pytest

from device_agent.contract.metrics import CONTENT_TYPE, LOOPBACK, Metric, MetricsServer, exposition

# Of the text format: a name, labels whose values are escaped, a number.
_LINE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? '
    r"(?P<value>[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)"
)


def parsed(text: str) -> dict[str, list[float]]:
    """Values by name; every line has to be of the format."""
    found: dict[str, list[float]] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(r"# (HELP [a-z0-9_]+ .+|TYPE [a-z0-9_]+ (gauge|counter))", line), line
            continue
        match = _LINE.fullmatch(line)
        assert match, line
        found.setdefault(match["name"], []).append(float(match["value"]))
    return found


def test_the_text_is_that_of_the_format() -> None:
    metrics = [
        Metric("a_celsius", "gauge", "Temperature.", [({"zone": "cpu"}, 41.5), ({"zone": "gpu"}, 40)]),
        Metric("b_total", "counter", "A count.", [({}, 3.0)]),
    ]
    assert exposition(metrics) == (
        "# HELP a_celsius Temperature.\n# TYPE a_celsius gauge\n"
        'a_celsius{zone="cpu"} 41.5\na_celsius{zone="gpu"} 40.0\n'
        "# HELP b_total A count.\n# TYPE b_total counter\nb_total 3.0\n"
    )
    assert parsed(exposition(metrics)) == {"a_celsius": [41.5, 40.0], "b_total": [3.0]}


def test_what_is_no_number_is_left_out() -> None:
    values = [({"z": "1"}, math.nan), ({"z": "2"}, math.inf), ({"z": "3"}, 1e-9)]
    assert parsed(exposition([Metric("a", "gauge", "x", values)])) == {"a": [1e-9]}
    assert exposition([Metric("a", "gauge", "x", values[:2])]) == "\n"


@pytest.mark.parametrize("text", ['"} 1\nother 5', "\\", "\x1b[31m", "a\nb", "\u202e", "x" * 5000, ""])
def test_a_label_of_anybody_stays_in_its_place(text: str) -> None:
    shown = exposition([Metric("a", "gauge", "x", [({"name": text}, 1.0)])])
    assert parsed(shown) == {"a": [1.0]} and len(shown) < 1000


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    def collect() -> list[Metric]:
        return [Metric("a", "gauge", "x", [({}, 1.0)])]

    with MetricsServer(LOOPBACK, 0, collect) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(LOOPBACK, server.port, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    connection.close()
    return found


def test_one_page_has_the_figures_of_the_moment(server: MetricsServer) -> None:
    assert ask(server, "/metrics") == (200, CONTENT_TYPE, "# HELP a x\n# TYPE a gauge\na 1.0\n")
    assert ask(server, "/metrics?x=1")[0] == 200
    assert ask(server, "/")[0] == ask(server, "/../metrics/x")[0] == 404
    assert ask(server, "/metrics", "POST")[0] == ask(server, "/metrics", "DELETE")[0] == 501


def test_what_cannot_be_collected_is_an_answer(server: MetricsServer) -> None:
    def broken() -> list[Metric]:
        raise ValueError("the server\x1b is away")

    server.collect = broken
    code, _, text = ask(server, "/metrics")
    assert code == 503 and text == "the server\\x1b is away\n"


def test_it_listens_where_it_was_told_alone(server: MetricsServer) -> None:
    assert server.server_address[0] == LOOPBACK
    for address in ("nowhere", "", "127.0.0.1:80"):
        with pytest.raises(ValueError, match="address"):
            MetricsServer(address, 0, list)
    with pytest.raises(OSError):
        MetricsServer(LOOPBACK, server.port, list)


def test_clients_that_say_nothing_are_bounded(server: MetricsServer) -> None:
    silent = [socket.create_connection((LOOPBACK, server.port), timeout=60) for _ in range(20)]
    # Those beyond the places are closed at once, and the others get theirs when these go.
    closed = 0
    for one in silent[8:]:
        try:
            closed += one.recv(1) == b""
        except ConnectionResetError:
            closed += 1
    assert closed == 12
    for one in silent:
        one.close()
    for _ in range(2000):
        try:
            if ask(server, "/metrics")[0] == 200:
                break
        except (ConnectionError, http.client.HTTPException):
            continue
    else:
        pytest.fail("no place became free")
