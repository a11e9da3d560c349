"""`adaptive-spec replay` as a user calls it."""

import json
from functools import partial

import pytest

from adaptive_spec.operation.segments import read_trace
from tests.command_line import called

KEYS = (
    *("policy", "throughput_tok_s", "ttft_ms", "tpot_ms", "mean_k", "accepted_per_step"),
    *("mode_fraction", "decision_us"),
)


replay = partial(called, "replay")


def results(*arguments: object) -> list[dict]:
    done = replay(*arguments, "--seeds", 1, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_works_without_arguments(tmp_path):
    done = replay("--tokens", 5000, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "best fixed K on this load" in done.stdout
    for policy in ("off", "static:k=3", "goodput"):
        assert policy in done.stdout


@pytest.mark.slow
def test_json_and_another_machine_run_what_replay_alone_runs():
    """The same three loads and set-ups, whether printed or for programs."""
    plain = replay().stdout
    found = json.loads(replay("--json").stdout)
    assert {each["load"] for each in found} == {"closed:1", "closed:16", "closed:64"}
    off = [each["throughput_tok_s"] for each in found if each["policy"] == "off"]
    assert len(found) == 18
    for speed in off:
        assert f"{speed:,.0f} tok/s" in plain
    for each in found:
        if each["policy"] == "goodput":
            base = off[["closed:1", "closed:16", "closed:64"].index(each["load"])]
            assert f"{each['throughput_tok_s'] / base:.2f}" in plain
    other = replay("--hardware", "h200-llama-8b").stdout
    assert "h200-llama-8b" in other
    assert "at worst" in other
    assert [line for line in other.splitlines() if "tok/s" in line and "no spec" in line] != [
        line for line in plain.splitlines() if "tok/s" in line and "no spec" in line
    ]


def test_a_wrong_machine_is_one_line_before_anything_runs():
    done = replay("--hardware", "nothing-such")
    assert done.returncode == 2
    assert "unknown hardware 'nothing-such'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_three_seeds_run_by_default_and_their_spread_is_shown():
    common = ("--load", "closed:4", "--acceptance", "model:mixed", "--tokens", 600)
    done = replay(*common)
    assert done.returncode == 0, done.stderr
    assert "means of 3 seeds" in done.stdout
    assert "±" in done.stdout
    found = json.loads(replay(*common, "--json").stdout)
    assert [each["seed"] for each in found] == [0, 1, 2] * 3
    assert len({each["throughput_tok_s"] for each in found[:3]}) > 1
    assert "±" not in replay(*common, "--seeds", 1).stdout


def test_a_run_outside_of_what_was_validated_is_told_in_one_line():
    common = ("--load", "closed:4", "--acceptance", "model:good", "--tokens", 300, "--seeds", 1)
    inside = ("--hardware", "a100-llama-8b", "--kmax", 5)
    assert "this run has" not in replay(*common, *inside).stdout
    outside = replay(*common, "--hardware", "a100-llama-8b", "--kmax", 7).stdout
    assert "this run has K up to 7" in outside
    never = replay(*common, "--hardware", "l40s-llama-8b").stdout
    assert "never held against" in never
    [result] = results(*common, *inside, "--policy", "static:k=2")
    assert 0.0 < result["regret"]["model_error"] < 0.25


def test_the_table_fits_a_terminal_of_80_characters():
    done = replay("--tokens", 1000, "--acceptance", "model:good", columns=80)
    assert max(map(len, done.stdout.splitlines())) <= 80
    for policy in ("off", "static:k=3", "goodput"):
        assert policy in done.stdout
    assert "/ foresight" in done.stdout
    assert "more columns in a wider terminal" in done.stdout


def test_a_narrower_terminal_keeps_the_policies_names_and_drops_columns():
    common = ("--tokens", 500, "--acceptance", "model:good", "--load", "closed:2", "--seeds", 1)
    for columns, kept in ((40, "/ best K"), (60, "/ foresight")):
        done = replay(*common, "--policy", "goodput", columns=columns)
        assert max(map(len, done.stdout.splitlines())) <= columns
        assert kept in done.stdout
        assert "goodput" in done.stdout
        assert "…" not in done.stdout


def test_the_best_k_is_one_that_may_run():
    common = ("--level", 0, "--ladder", "0,1,3,5", "--load", "closed:4", "--tokens", 1000)
    done = replay(*common, "--acceptance", "model:good", "--policy", "static:k=3")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("best fixed K")]
    named = line.partition(": ")[2].partition(";")[0]
    assert set(named.split(", ")) <= {"1", "3", "5"}


def test_a_long_path_of_a_load_does_not_widen_the_table(tmp_path):
    folder = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 5)
    folder.mkdir(parents=True)
    load = folder / "arrivals.csv"
    load.write_text("arrival_s,input_tokens,output_tokens\n" + "0,10,40\n" * 20)
    done = replay("--load", load, "--acceptance", "model:good", "--policy", "off", columns=80)
    assert done.stdout.splitlines()[0].startswith("arrivals.csv · eagle")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_oracles_that_are_left_out_are_mentioned_with_the_way_to_run_them():
    long = ("--acceptance", "model:good", "--policy", "static:k=3", "--load", "closed:256")
    long = (*long, "--tokens", 300_001, "--seeds", 1)
    assert "run them with --oracles always" in replay(*long).stdout
    assert "run them with --oracles always" in replay(*long, "--json").stderr
    assert "oracles" not in replay(*long, "--oracles", "never").stdout


def test_a_short_file_is_held_against_the_oracles_without_being_asked(tmp_path):
    load = tmp_path / "arrivals.csv"
    load.write_text("arrival_s,input_tokens,output_tokens\n" + "0,10,40\n" * 20)
    common = ("--load", load, "--acceptance", "model:good", "--policy", "static:k=2", "--kmax", 2)
    assert results(*common)[0]["regret"]["of_best_static"] > 0
    assert results(*common, "--oracles", "never")[0]["regret"] is None


def test_with_one_k_for_the_batch_foresight_is_no_bound_and_left_out():
    common = ("--acceptance", "model:good", "--policy", "static:k=2", "--tokens", 500)
    [result] = results(*common, "--level", 0)
    assert result["regret"]["of_foresight"] is None
    assert result["regret"]["of_best_static"] > 0
    assert "no foresight" in replay(*common, "--level", 0).stdout
    [result] = results(*common)
    assert result["regret"]["of_foresight"] > 0


def test_acceptance_of_other_drafts_than_copied_ones_is_warned_of(tmp_path):
    common = ("--policy", "static:k=2", "--tokens", 200, "--oracles", "never")
    assert "not known to come from copied drafts" in replay("--drafter", "ngram", *common).stderr
    assert replay("--drafter", "eagle", *common).stderr == ""
    lists = tmp_path / "lists.jsonl"
    lists.write_text('{"ngram": [3, 2, 1, 1, 2, 1], "eagle": [3, 2, 1, 1, 2, 1]}\n' * 8)
    assert replay("--drafter", "ngram", "--acceptance", lists, *common).stderr == ""


def test_the_command_of_the_documentation(data):
    found = results(
        *("--load", "closed:64", "--drafter", "eagle", "--hardware", "h100-llama-8b"),
        "--acceptance",
        data / "unlicensed" / "acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz",
        *("--policy", "off", "--policy", "static:k=3", "--policy", "goodput"),
        *("--tokens", 20000),
    )
    assert [each["policy"] for each in found] == ["off", "static:k=3", "goodput"]
    for each in found:
        assert set(KEYS) <= set(each)
        assert {"p50", "p90", "p99"} <= set(each["ttft_ms"])
        assert {"p50", "p90", "p99"} <= set(each["tpot_ms"])
    off, static, goodput = (each["throughput_tok_s"] for each in found)
    assert static > 1.2 * off
    assert goodput > 1.2 * off
    assert found[0]["mode_fraction"] == {"off_cold": 1.0}
    assert 2.8 < found[1]["mean_k"] <= 3.0


def test_the_same_seed_prints_the_same_figures():
    def figures():
        found = results("--acceptance", "model:mixed", "--tokens", 2000, "--seed", 5)
        for each in found:
            del each["decision_us"], each["simulation_seconds"]
        return found

    assert figures() == figures()


def test_acceptance_files_are_mixed():
    one = results("--acceptance", "model:good", "--tokens", 3000, "--policy", "static:k=4")
    both = results(
        *("--acceptance", "model:good", "--acceptance", "model:poor"),
        *("--tokens", 3000, "--policy", "static:k=4"),
    )
    assert both[0]["accepted_per_step"] < one[0]["accepted_per_step"]


def test_what_was_rejected_is_said():
    done = replay("--acceptance", "model:good", "--tokens", 100, "--kv-tokens", 200)
    assert "requests would never fit into the KV pool" in done.stdout


def test_limits_add_a_column():
    done = replay("--acceptance", "model:good", "--tokens", 2000, "--tpot-limit", 20)
    assert "good req/s" in done.stdout


def test_a_drafter_with_a_limit_of_its_own_sets_kmax():
    [result] = results(
        *("--drafter", "lookahead", "--acceptance", "model:good", "--tokens", 1000),
        *("--policy", "static"),
    )
    assert 0 < result["mean_k"] < 8


def test_a_small_kmax_needs_no_other_option():
    assert max(result["mean_k"] for result in results("--kmax", 1, "--tokens", 200)) <= 1


def test_a_step_trace_is_written_per_policy(tmp_path):
    done = replay(
        *("--tokens", 1000, "--policy", "static:k=2", "--policy", "off"),
        *("--acceptance", "model:good", "--trace", tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert {folder.name for folder in tmp_path.iterdir()} == {"0-static", "1-off"}
    assert all(max(record["k"], default=0) <= 2 for record in read_trace(tmp_path / "0-static"))


def test_a_recorded_trace_is_replayed_as_load_and_as_acceptance(tmp_path):
    common = ("--tokens", 1000, "--policy", "static:k=4")
    first = replay(*common, "--acceptance", "model:good", "--trace", tmp_path)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "0-static"
    found = results(*common, "--acceptance", folder, "--load", folder)
    assert found[0]["tokens"] > 500


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "nonsense"), ("unknown policy", "goodput")),
        (("--policy", "static:q=1"), ("static", "`q`")),
        (("--policy", "static:k=9"), ("static:k=9", "exceeds Kmax 8")),
        (("--policy", "static:"), ("static:", "NAME:key=value")),
        (
            ("--policy", "static:k=2", "--level", "0", "--ladder", "0,1,3"),
            ("static:k=2", "not on the ladder 0, 1, 3"),
        ),
        (("--hardware", "h999"), ("h999", "h100-llama-8b")),
        (("--drafter", "crystal-ball"), ("crystal-ball", "eagle")),
        (("--load", "closed:none"), ("closed:none",)),
        (("--load", "missing.csv"), ("missing.csv",)),
        (("--acceptance", "missing.jsonl"), ("missing.jsonl",)),
        (("--acceptance", "model:nobody"), ("nobody", "good")),
        (("--drafter", "eagle", "--kmax", "300"), ("300",)),
        (("--ladder", "1,two", "--level", "0"), ("--ladder", "1,two")),
        (("--ladder", "0,1"), ("--ladder", "--level 0")),
        (("--ladder", "1,99", "--level", "0"), ("ladder", "99")),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(arguments, words):
    done = replay("--tokens", 100, *arguments)
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
