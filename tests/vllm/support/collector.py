"""A collector of OpenTelemetry spans, which come by OTLP over HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.http_servers import Handler, listening


class Collector:
    """Spans of `llm_request`, in the order of their arrival."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []

    def take(self, body: bytes) -> None:
        """Keep what an export holds."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.requests += [
                    {each.key: value_of(each.value) for each in span.attributes}
                    for span in scope.spans
                    if span.name == "llm_request"
                ]


def value_of(value: Any) -> Any:
    """The value of an attribute, whatever its type."""
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the end of the block."""
    collector = Collector()

    class Spans(Handler):
        def respond(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(200)

    with listening(Spans) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        yield collector
