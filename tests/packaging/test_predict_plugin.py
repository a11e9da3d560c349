"""Dynamo's PREDICT plugin says what our counters say, by its PromQL and over Dynamo's gRPC."""

import asyncio
import importlib.util
import json
import re
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from adaptive_spec.controller.controller import Controller
from adaptive_spec.operation.metrics import families
from adaptive_spec.policy import build_policy
from tests.http_servers import Handler, listening
from tests.steps import context, full, outcome

pytest.importorskip("prometheus_client")

FILE = Path(__file__).resolve().parents[2] / "deploy" / "dynamo" / "predict_accept_length.py"


def module() -> Any:
    spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def figures(steps: int) -> dict[str, float]:
    """Samples of an engine that runs K = 0 in every other step, and has two of three accepted."""
    capability = full(3)
    controller = Controller(build_policy("static", {"k": 3}), capability)
    for number in range(steps):
        step = context(2, capability, step=number)
        controller.plan(step)
        k = 3 * (number % 2)
        controller.observe(outcome(step, k, k and 2))
    found = families([(("a", "0"), controller.status())])
    return {
        sample.name: sample.value
        for family in found
        for sample in family.samples
        if sample.labels.keys() == {"model_name", "engine"}
    }


@pytest.fixture(params=[0, 40], ids=["idle", "busy"])
def prometheus(request: pytest.FixtureRequest) -> Iterator[tuple[str, float | None]]:
    """URL of a server that evaluates quotients of sums of rates, and the true accept length."""
    samples = figures(request.param)

    class Prometheus(Handler):
        def respond(self) -> None:
            [query] = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["query"]
            rate = r'sum\(rate\((\w+)\{model_name="a"\}\[5m\]\)\)'
            over, under = re.fullmatch(f"{rate} / {rate}", query).groups()
            value = samples[over] / samples[under] if samples.get(under) else float("nan")
            found = [{"value": [0.0, str(value)]}]
            self.answer(200, json.dumps({"data": {"result": found}}).encode())

    with listening(Prometheus) as server:
        yield f"http://127.0.0.1:{server.server_port}", 2.0 if request.param else None


def test_rounds_without_drafts_count(prometheus: tuple[str, float | None]) -> None:
    url, length = prometheus
    assert module().accept_length(url, "a") == length


def test_without_an_answer_the_planner_keeps_its_own_figure() -> None:
    assert module().accept_length("http://127.0.0.1:9", "a") is None


@pytest.mark.long
def test_the_planner_gets_it_over_grpc(
    prometheus: tuple[str, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = importlib.util.find_spec("dynamo")
    if place is None or not place.submodule_search_locations:
        pytest.skip("needs ai-dynamo 1.6")
    # The planner itself needs packages of NVIDIA's own index; its protocol does not.
    planner = ModuleType("dynamo.planner")
    planner.__path__ = [f"{each}/planner" for each in place.submodule_search_locations]
    monkeypatch.setitem(sys.modules, "dynamo.planner", planner)
    import grpc
    from dynamo.planner.plugins.proto.v1 import plugin_pb2, plugin_pb2_grpc

    url, length = prometheus

    async def predicted() -> Any:
        server, port = await module().serve("127.0.0.1:0", url, "a")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = plugin_pb2_grpc.PredictPluginStub(channel)
            answer = await stub.Predict(plugin_pb2.PredictStageRequest())
        await server.stop(None)
        return answer.predictions

    found = asyncio.run(predicted())
    assert found.HasField("predicted_accept_length") == (length is not None)
    assert found.predicted_accept_length == (length or 0.0)
