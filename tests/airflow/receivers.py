"""What alerts and metrics are sent to: a mail server, and a collector of OpenTelemetry, both on loopback."""

from __future__ import annotations

import email
import email.policy
import gzip
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


@dataclass
class Receiver:
    """Takes what comes in over a port."""

    port: int = 0
    mails: list[tuple[str, str]] = field(default_factory=list)
    """Subject and text of each."""
    points: list[tuple[str, dict[str, str], float]] = field(default_factory=list)
    """Name, tags and value of each point of a metric; of a histogram, its sum."""

    def values(self, name: str, **tags: str) -> list[float]:
        """The values of a metric with these tags, in the order in which they came."""
        return [value for seen, its, value in self.points if seen == name and tags.items() <= its.items()]


@contextmanager
def mail_server() -> Iterator[Receiver]:
    """As much of SMTP as a client needs."""
    received = Receiver()

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                match line.strip().upper().split(b" ")[0]:
                    case b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        received.mails.append(_mail(self._body()))
                    case b"QUIT":
                        self.wfile.write(b"221 bye\r\n")
                        return
                self.wfile.write(b"250 fine\r\n")

        def _body(self) -> bytes:
            lines = []
            while (line := self.rfile.readline()) not in {b".\r\n", b""}:
                lines.append(line.removeprefix(b"."))
            return b"".join(lines)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        yield from _serve(server, received)


@contextmanager
def metrics_collector() -> Iterator[Receiver]:
    """Takes metrics in OpenTelemetry's protocol over HTTP."""
    received = Receiver()

    class Export(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.points += _points(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Export) as server:
        yield from _serve(server, received)


def _serve(server: socketserver.TCPServer, received: Receiver) -> Iterator[Receiver]:
    received.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield received
    finally:
        server.shutdown()


def _mail(content: bytes) -> tuple[str, str]:
    message = email.message_from_bytes(content, policy=email.policy.default)
    body = message.get_body(("html", "plain"))
    return str(message["Subject"]), body.get_content() if body is not None else ""


def _points(exported: Any) -> Iterator[tuple[str, dict[str, str], float]]:
    scopes = (scope for resource in exported.resource_metrics for scope in resource.scope_metrics)
    for metric in (metric for scope in scopes for metric in scope.metrics):
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            tags = {attribute.key: attribute.value.string_value for attribute in point.attributes}
            if kind == "exponential_histogram":
                value = point.sum
            else:
                value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            yield metric.name, tags, float(value)
