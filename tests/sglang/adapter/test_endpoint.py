"""A scheduler's end of our HTTP routes, the number of its replica, and who may switch."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from policies_for_tests import RecordingPolicy
from scheduler_loop import Loop

from adaptive_spec.adapters.sglang import endpoint
from adaptive_spec.adapters.sglang.attach import Attached, replica
from adaptive_spec.adapters.sglang.endpoint import answered
from adaptive_spec.config import Config


def asking(**question: Any) -> Any:
    """Return a request as our routes send it to a scheduler."""
    asked = {"request": None, "history": False, "break_even": False} | question
    return SimpleNamespace(rid=f"adaptive_spec {json.dumps(asked)}")


def attached_to(loop: Loop, engine: int = 0) -> Attached:
    driver = loop.attach(RecordingPolicy(), config=Config(mode="on"))
    return Attached(driver, driver._params, engine=engine)


def told(attached: Attached, **question: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        answered(asking(**question), attached).internal_state["adaptive_spec"]
    )
    return answer


@pytest.mark.engine
def test_a_scheduler_answers_our_requests_and_leaves_others_to_sglang() -> None:
    loop = Loop()
    attached = attached_to(loop, engine=3)
    for rid in (None, "", "adaptive_specs", ["adaptive_spec {}"]):
        assert answered(SimpleNamespace(rid=rid), attached) is None
    loop.run(50)
    assert set(told(attached)) == {"engine", "status"}
    now = told(attached, history=True, break_even=True)
    assert set(now) == {"engine", "status", "history", "break_even"}
    assert (now["engine"], now["status"]["mode"]) == (3, "on")
    assert now["status"]["steps"] > 0
    assert told(attached, request={"mode": "shadow"})["status"]["mode"] == "shadow"
    refused = told(attached, request={"mode": "faster"})
    assert "mode" in refused["error"]
    assert refused["status"]["switches"] == 1


@pytest.mark.engine
def test_nothing_attached_and_a_rank_that_is_told_say_nothing() -> None:
    attached = attached_to(Loop())
    attached.driver.controller = None
    for each in (attached, None):
        assert answered(asking(), each).internal_state == {}


@pytest.mark.engine
def test_a_switch_shows_in_the_metrics_at_once() -> None:
    attached = attached_to(Loop())
    seen: list[bool] = []
    attached.metrics = SimpleNamespace(refresh=lambda now, at_once: seen.append(at_once))
    told(attached)
    assert seen == []
    told(attached, request={"mode": "off"})
    assert seen == [True]


def test_each_replica_has_its_number() -> None:
    for rank, number in ((None, 0), (0, 0), (2, 2)):
        assert replica(SimpleNamespace(ps=SimpleNamespace(dp_rank=rank))) == number


@pytest.mark.parametrize(
    ("arguments", "local"),
    [
        ({"host": "127.0.0.1"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "127.0.0.1", "api_key": "k"}, False),
        ({"host": "127.0.0.1", "admin_api_key": "k"}, False),
    ],
)
def test_without_an_admin_key_only_a_server_of_this_machine_without_keys_switches(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, str], local: bool
) -> None:
    added: list[str] = []
    app = SimpleNamespace(
        state=SimpleNamespace(), add_route=lambda path, *a, **k: added.append(path)
    )
    monkeypatch.setitem(endpoint.sys.modules, endpoint.HTTP_SERVER, SimpleNamespace(app=app))
    endpoint.serve(SimpleNamespace(**arguments))
    endpoint.serve(SimpleNamespace(**arguments))
    assert len(added) == len(set(added)) == 3
    refusal = app.state.adaptive_spec.access.refusal({"host": "127.0.0.1:30000"})
    assert (not refusal) == local
