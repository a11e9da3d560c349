"""PREDICT plugin of NVIDIA Dynamo's planner: tokens per request and step, rounds at K = 0 included.

    python predict_accept_length.py http://PROMETHEUS:9090 MODEL_NAME --listen 0.0.0.0:9099

The planner divides the inter-token latency by this. Its own figure, from vLLM's counters, leaves
out rounds without drafts. Name the server under `external_plugins:` of the planner's configuration,
stage `predict`, with a smaller priority than the planner's own. Needs ai-dynamo 1.6; where
Prometheus has no answer, the planner keeps its own figure.
"""

import argparse
import asyncio
import json
import math
import urllib.parse
import urllib.request


def accept_length(prometheus: str, model: str) -> float | None:
    """Return emitted tokens over steps of requests; None where nothing decoded, or no answer."""
    emitted, steps = (
        f"sum(rate(adaptive_spec_{name}{{model_name={json.dumps(model)}}}[5m]))"
        for name in ("emitted_tokens_total", "verified_per_request_count")
    )
    query = urllib.parse.urlencode({"query": f"{emitted} / {steps}"})
    url = f"{prometheus.rstrip('/')}/api/v1/query?{query}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            [found] = json.load(answer)["data"]["result"]
        value = float(found["value"][1])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value if math.isfinite(value) else None


def plugin(*asked):
    """Return what answers the planner's requests.

    Args:
        asked: URL of Prometheus, and the model's name in vLLM's metrics.
    """
    from dynamo.planner.plugins.proto.v1 import plugin_pb2, plugin_pb2_grpc

    class AcceptLength(plugin_pb2_grpc.PredictPluginServicer):
        async def Predict(self, request, context):  # noqa: N802 (the protocol's name)
            """Return the accept length alone; the other fields stay those of the planner."""
            response = plugin_pb2.PredictStageResponse()
            length = await asyncio.to_thread(accept_length, *asked)
            if length is not None:
                response.predictions.predicted_accept_length = length
                response.predictions.source = "adaptive_spec"
            return response

    return AcceptLength()


async def serve(listen, *asked):
    """Return a gRPC server that has begun to answer, and its port."""
    import grpc
    from dynamo.planner.plugins.proto.v1 import plugin_pb2_grpc

    server = grpc.aio.server()
    plugin_pb2_grpc.add_PredictPluginServicer_to_server(plugin(*asked), server)
    port = server.add_insecure_port(listen)
    await server.start()
    return server, port


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("prometheus")
    parser.add_argument("model")
    parser.add_argument("--listen", default="127.0.0.1:9099")
    options = parser.parse_args()
    server, _ = await serve(options.listen, options.prometheus, options.model)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
