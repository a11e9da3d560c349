"""The operator's controls and figures on a running server: endpoint, control file, /metrics."""

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from engines import KMAX
from prometheus_client.parser import text_string_to_metric_families
from scenarios import prompts
from server import ADMIN_KEY, AT_START, Server, serving

from adaptive_spec.audit.blocks import BLOCK_STEPS
from adaptive_spec.operation.metrics import COMMON_LABELS, DISTRIBUTIONS, FIGURES

pytestmark = pytest.mark.http

PATH = "/v1/adaptive_spec"
TEXTS = prompts(16, 41)
MOST_TURNS = 30
"""Turns of all texts in which blocks of both arms end; a block has a frame of four."""
DASHBOARDS = Path(__file__).resolve().parents[2] / "dashboards"
ALWAYS = {
    "adaptive_spec_decisions_total",
    "adaptive_spec_state",
    "adaptive_spec_verified_per_request",
    "adaptive_spec_verified_tokens_total",
}
"""Figures that have a value as soon as a step has run."""


def tokens(answer: dict[str, Any]) -> tuple[int, ...]:
    return tuple(answer["choices"][0]["token_ids"])


def verified_in(server: Server, prompt: str) -> int:
    """Drafts that were verified while a prompt was answered."""
    before = server.engine()["verified_tokens"]
    server.complete(prompt)
    return int(server.engine()["verified_tokens"] - before)


def test_the_routes_are_guarded_by_the_api_key(server: Server) -> None:
    assert server.refusal(PATH, key=None)[0] == 401
    assert server.refusal(PATH, {"mode": "off"}, key="wrong")[0] == 401
    assert server.engine()["mode"] == "on"


def test_a_clients_key_reads_and_does_not_switch(server: Server) -> None:
    for admin in ("", "another-admin-key"):
        status, text = server.refusal(PATH, {"mode": "off"}, admin=admin)
        assert status == 403
        assert "admin key" in json.loads(text)["error"]
    [engine] = server.ask(PATH, admin="")["engines"]
    assert engine["status"]["mode"] == "on"
    hidden = {"options", "trace_directory", "control_file_error", "stuck_latest", "label_drift"}
    assert not hidden & set(engine["status"])
    assert "options" in server.engine()


@pytest.mark.every_version
def test_status_is_json_of_every_engine(server: Server) -> None:
    server.complete(TEXTS[0], max_tokens=4)
    answer = server.ask(PATH)
    assert [engine["engine"] for engine in answer["engines"]] == [0]
    status = answer["engines"][0]["status"]
    assert status["policy"] == "random"
    assert status["max_draft_tokens"] == KMAX
    assert status["steps"] > 0


@pytest.mark.long  # tests/core/audit and tests/losslessness have such blocks in every run
def test_audit_blocks_change_no_token_and_are_compared(
    switched: Server, unspeculated: dict[str, tuple[int, ...]]
) -> None:
    raised = {"share": 0.25, "arms": ["engine", "none"], "guard": False, "minutes": 60}
    switched.ask(PATH, {"audit": raised})
    before = switched.engine()["steps_by_mode"].get("shadow", 0)
    for _ in range(MOST_TURNS):
        for text in TEXTS:
            assert tokens(switched.complete(text)) == unspeculated[text]
        audit = switched.engine()["audit"]
        assert audit["share"] == 0.25
        # The arm of a block is drawn: both have come, and the engine's own K has run in its own.
        if len(audit["proof"]) == 2 and all(each["blocks"] for each in audit["proof"].values()):
            break
    assert all(audit["proof"][arm]["blocks"] for arm in ("engine", "none"))
    # Steps of a block that only read a prompt count in no mode.
    assert switched.engine()["steps_by_mode"]["shadow"] > before + BLOCK_STEPS // 2
    switched.ask(PATH, {"audit": {}})
    assert switched.engine()["audit"]["share"] == 0.01


@pytest.mark.every_version
@pytest.mark.parametrize("figures", ["hostile", "raising"])
def test_no_figure_of_a_policy_silences_the_server(
    switched: Server, unspeculated: dict[str, tuple[int, ...]], figures: str
) -> None:
    switched.ask(PATH, AT_START | {"options": {"figures": figures}})
    for text in TEXTS[:4]:
        assert tokens(switched.complete(text)) == unspeculated[text]
        for query in ("", "?history=1&break_even=1"):
            for admin in ("", ADMIN_KEY):
                [engine] = switched.ask(PATH + query, admin=admin)["engines"]
                assert engine["status"]["policy"] == "random"
    status = switched.engine()
    assert status["goodput"]["predicted"] > 0.0
    assert status["estimates"] == {}
    assert status["output_failures"]["the policy's figures"] > 0
    assert status["last_reason"] == ("half ?, \x1b[31m red" if figures == "hostile" else "random")
    assert value_of(switched.ask("/metrics", key=None), "adaptive_spec_verified_tokens_total") > 0
    assert not status["fail_opens"]


@pytest.mark.every_version
def test_policies_are_switched_while_the_server_runs(
    switched: Server, unspeculated: dict[str, tuple[int, ...]]
) -> None:
    text = TEXTS[3]
    [engine] = switched.ask(PATH, {"policy": "off"})["engines"]
    assert engine["status"]["policy"] == "off"
    assert verified_in(switched, text) == 0
    assert switched.engine()["steps_by_mode"]["off_cold"] > 0
    assert switched.engine()["fail_opens"] == {}
    switched.ask(PATH, {"policy": "static", "options": {"k": 3}})
    assert verified_in(switched, text) > 0
    assert switched.engine()["options"] == {"k": 3}
    switched.ask(PATH, {"policy": "goodput"})
    assert tokens(switched.complete(text)) == unspeculated[text]
    switched.ask(PATH, AT_START)
    assert switched.engine()["policy"] == "random"
    assert switched.engine()["fail_opens"] == {}


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_modes_are_switched_while_the_server_runs(switched: Server, mode: str) -> None:
    switched.ask(PATH, {"mode": mode, "policy": "static", "options": {"k": 1}})
    drafted = switched.complete(TEXTS[4])["metrics"]["speculative_decoding"]
    assert drafted["num_draft_tokens"] / drafted["num_spec_steps"] > 1, "the engine's own K runs"
    assert switched.engine()["mode"] == mode


def test_the_control_file_switches_too(switched: Server) -> None:
    write(switched.control, '{"policy": "static", "options": {"k": 2}}')
    switched.wait_for(lambda: switched.engine()["policy"] == "static", "the control file")
    write(switched.control, '{"policy": "stat')
    error = switched.wait_for(lambda: switched.engine()["control_file_error"], "the bad file")
    assert "not valid JSON" in error
    assert switched.engine()["policy"] == "static"
    write(switched.control, json.dumps(AT_START))
    switched.wait_for(lambda: switched.engine()["policy"] == "random", "the control file")
    assert switched.engine()["control_file_error"] == ""


def write(path: Path, text: str) -> None:
    """As an operator should: the file appears as a whole."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def families_of(scrape: str) -> dict[str, str]:
    """Name and type of every family on the page."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", scrape, re.MULTILINE))


def value_of(scrape: str, sample: str) -> float:
    found = re.findall(rf"^{re.escape(sample)}\{{[^}}]*\}} (\S+)$", scrape, re.MULTILINE)
    return sum(map(float, found))


@pytest.mark.every_version
def test_every_figure_is_on_the_metrics_page(server: Server) -> None:
    verified_in(server, TEXTS[5])
    time.sleep(0.5)
    scrape = server.ask("/metrics", key=None)
    found = families_of(scrape)
    for figure in FIGURES:
        name = figure.name + ("_total" if figure.kind == "counter" else "")
        assert found[name] == figure.kind
    for distribution in DISTRIBUTIONS:
        assert found[distribution.name] == "histogram"
    status = server.engine()
    assert value_of(scrape, "adaptive_spec_verified_tokens_total") == status["verified_tokens"]
    assert value_of(scrape, "adaptive_spec_decisions_total") == status["steps"]
    assert value_of(scrape, "adaptive_spec_decision_seconds_count") > 0
    requests = sum(status["requests_by_k"].values())
    assert value_of(scrape, "adaptive_spec_verified_per_request_count") == requests
    [labels] = re.findall(r"^adaptive_spec_accepted_tokens_total\{(.*)\}", scrape, re.MULTILINE)
    assert labels == 'engine="0",model_name="bench"' or labels == 'model_name="bench",engine="0"'
    assert set(re.findall(r"(\w+)=", labels)) == set(COMMON_LABELS)


def samples_of(scrape: str) -> dict[str, list[dict[str, str]]]:
    """Labels of every sample by its name, as Prometheus's own client reads the page."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(scrape):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def selectors_of(query: str) -> list[tuple[str, dict[str, str]]]:
    """Metric and wanted labels of each selector in a PromQL query; variables are left out."""
    found = re.findall(r"\b((?:adaptive_spec_|vllm:)\w+)(?:\{([^}]*)\})?", query)
    return [(name, dict(re.findall(r'(\w+)="([^"$]*)"', labels))) for name, labels in found]


def dashboard_queries() -> list[str]:
    dashboard = json.loads((DASHBOARDS / "adaptive_spec.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found.append(variable["query"]["query"])
    return found


def alert_queries() -> list[str]:
    groups = yaml.safe_load((DASHBOARDS / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def by_position(server: Server) -> dict[str, Any]:
    """What vLLM and we have counted since the start, by position, and our totals."""
    time.sleep(1.5)
    scrape, ours = server.ask("/metrics", key=None), server.engine()

    def values(name: str, label: str) -> dict[str, float]:
        return {
            sample.labels[label]: sample.value
            for family in text_string_to_metric_families(scrape)
            for sample in family.samples
            if sample.name == name
        }

    most = values("adaptive_spec_verified_per_request_bucket", "le")
    accepted = values("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position")
    places = range(KMAX)
    return {
        "verified": np.array([most["+Inf"] - most[f"{place}.0"] for place in places]),
        "accepted": np.array([accepted[str(place)] for place in places]),
        "drafts": value_of(scrape, "vllm:spec_decode_num_drafts_total"),
        "ours": np.array([ours["verified_tokens"], ours["accepted_tokens"]]),
    }


def test_acceptance_by_position_is_over_the_rounds_that_verified_it(switched: Server) -> None:
    """The recording rule by position, whose denominators vLLM's own rates lack."""
    switched.ask(PATH, AT_START)  # K from 0 to Kmax
    before = by_position(switched)  # vLLM counts accepted drafts behind a stop of others, too
    for text in TEXTS[:8]:
        switched.complete(text)
    after = by_position(switched)
    found = {name: after[name] - before[name] for name in before}
    verified, accepted = found["verified"], found["accepted"]
    assert [verified.sum(), accepted.sum()] == found["ours"].tolist()
    rates = accepted / verified
    assert ((rates >= 0.0) & (rates <= 1.0)).all()
    assert found["drafts"] == verified[0]
    assert rates[-1] > 1.5 * accepted[-1] / found["drafts"], "K was below Kmax in many rounds"


def test_every_query_of_dashboard_and_alerts_selects_from_the_page(switched: Server) -> None:
    switched.ask(PATH, {"policy": "goodput"})
    for text in TEXTS * 8:
        switched.complete(text)
        if switched.engine().get("estimates"):
            break
    time.sleep(0.5)
    scrape = switched.ask("/metrics", key=None)
    samples = samples_of(scrape)
    # A counter with labels has no sample before its first fault or event, but is declared.
    declared = set(families_of(scrape))
    queries = [*dashboard_queries(), *alert_queries()]
    # Recorded series are not on a server's page, and SGLang's are on its own.
    queries = [query for query in queries if not re.search(r"\((sglang|adaptive_spec):", query)]
    assert len(queries) >= 25
    for query in queries:
        selectors = selectors_of(query)
        assert selectors, query
        for name, wanted in selectors:
            known = samples.get(name, [])
            assert known or name in declared, (query, name)
            if name == "adaptive_spec_measured_gain" and not known:
                continue  # no interval before a dozen blocks, which are hours of this server
            assert not wanted or any(wanted.items() <= labels.items() for labels in known), query
    ours, vllms = (
        {(labels["model_name"], labels["engine"]) for labels in samples[name]}
        for name in ("adaptive_spec_state", "vllm:num_requests_running")
    )
    assert ours <= vllms, "the rules join both by these labels"


@pytest.mark.long
def test_two_api_servers_show_the_same_engine(models: dict[str, Path], tmp_path: Path) -> None:
    adaptive = {"policy": "static", "options": {"k": 2}}
    arguments = ("--api-server-count", "2")
    with serving(models, tmp_path, adaptive, *arguments, method="ngram") as two:
        for _ in range(6):
            two.complete(TEXTS[0], max_tokens=24)
        scrape = two.wait_for(lambda: page_with_figures(two), "figures of several API servers")
        families = families_of(scrape)
        assert set(families) >= ALWAYS
        assert 'pid="' not in "".join(re.findall(r"^adaptive_spec.*$", scrape, re.MULTILINE))
        assert any(name.startswith("vllm:") for name in families), "vLLM's own figures are hidden"
        assert two.refusal(PATH, key=None)[0] == 401
        two.ask(PATH, {"policy": "off"})
        # Whichever of the two answers, it speaks for the one engine.
        for _ in range(6):
            assert two.engine()["policy"] == "off"
        assert two.engine()["switches"] == 1


def page_with_figures(server: Server) -> str:
    scrape: str = server.ask("/metrics", key=None)
    return scrape if value_of(scrape, "adaptive_spec_verified_tokens_total") > 0 else ""
