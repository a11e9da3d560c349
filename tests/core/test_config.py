"""Bad input gets one line that names the key and the remedy."""

from pathlib import Path

import pytest

from adaptive_spec.config import (
    Config,
    config_from_environment,
    load_config_file,
    mistaken_names,
    parse_config,
)
from adaptive_spec.errors import ConfigError, PolicyError
from adaptive_spec.policy import build_policy, policy_class
from tests.refused import refused


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"modee": "on"}, "modee"),
        ({"mode": "auto"}, "choose one of off, on, shadow"),
        ({"kernel": "numpy"}, "`kernel` was removed in 0.2: decisions are always compiled"),
        ({"options": {"x": float("inf")}}, "not a finite number"),
        ({"seed": "one"}, "seed"),
        ({"trace": {"folder": "x"}}, "folder"),
        ({"trace": {"segment_mb": -1}}, "segment_mb"),
        ({"fail_open": {"bench_seconds": 0}}, "bench_seconds"),
        ({"profile": "/nowhere/profile.json"}, "profile"),
        ([], "object"),
        ("on", "object"),
    ],
)
def test_bad_values_are_one_line_that_names_the_key(value: object, named: str) -> None:
    with refused(ConfigError, named, match="^--additional-config adaptive_spec"):
        parse_config(value, source="--additional-config adaptive_spec")


def test_an_unknown_key_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"keys are .*policy.*seed"):
        parse_config({"polisy": "off"}, source="x")
    with pytest.raises(ConfigError, match=r"keys are directory"):
        parse_config({"trace": {"dir": "."}}, source="x")


def test_the_largest_k_is_said_to_be_the_engines() -> None:
    for key in ("kmax", "k_max", "num_speculative_tokens"):
        with refused(ConfigError, "Kmax is the engine's own num_speculative_tokens", key):
            parse_config({key: 5}, source="x")


def test_the_object_around_the_configuration_is_understood() -> None:
    assert parse_config({"adaptive_spec": {"seed": 2}}, source="x").seed == 2
    with refused(ConfigError, "x: `adaptive_spec`: expected an object", "got str"):
        parse_config({"adaptive_spec": "on"}, source="x")
    with refused(ConfigError, "holds the whole configuration; move mode into it"):
        parse_config({"adaptive_spec": {}, "mode": "on"}, source="x")
    with refused(ConfigError, "'adaptive-spec' is no key; did you mean `adaptive_spec`?"):
        parse_config({"adaptive-spec": {}}, source="x")


@pytest.mark.parametrize(
    ("given", "environ", "named"),
    [
        ({"adaptive-spec": {"mode": "on"}}, {}, ["adaptive-spec"]),
        ({"AdaptiveSpec": {}, "other": 1}, {}, ["AdaptiveSpec"]),
        ({"adaptive_speculation": {}}, {}, ["adaptive_speculation"]),
        ({"mode": "on"}, {}, ["mode"]),
        ({"adaptive_spec": {}, "policy": "off"}, {}, ["policy"]),
        ({}, {"ADAPTIVE_SPEC_CONF": "x", "ADAPTIVE_SPEC_ADMIN_KEY": "x"}, ["ADAPTIVE_SPEC_CONF"]),
        ({"a\x1b[31mdaptive_spec": {}}, {}, ["\\x1b[31m"]),
        ({"adaptive_spec": {}, "scheduler": {}, "other": 1}, {}, []),
        (None, {"ADAPTIVE_SPEC_CONFIG": "x", "ADAPTIVE_SPEC_VENVS": "x", "SPEC": "x"}, []),
    ],
)
def test_a_wrong_name_is_never_silently_nothing(
    given: object, environ: dict[str, str], named: list[str]
) -> None:
    found = mistaken_names(given, environ)
    assert len(found) == len(named)
    for sentence, name in zip(found, named, strict=True):
        assert name in sentence
        assert sentence.isprintable()


def test_defaults_need_nothing() -> None:
    assert parse_config({}, source="x") == Config()


def test_files_are_read_as_yaml_or_json(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("mode: shadow\npolicy: static\noptions: {k: 2}\n")
    (tmp_path / "c.json").write_text('{"mode": "shadow", "policy": "static", "options": {"k": 2}}')
    assert load_config_file(tmp_path / "c.yaml") == load_config_file(tmp_path / "c.json")
    assert config_from_environment({"ADAPTIVE_SPEC_CONFIG": str(tmp_path / "c.yaml")}) is not None
    assert config_from_environment({}) is None


@pytest.mark.parametrize(
    "text",
    ["mode: [", "just text", "", "- a\n- b", "- " * 100_000, "seed: " + "9" * 6000, "\x00"],
    ids=range(7),
)
def test_a_damaged_file_is_one_error_that_names_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with refused(ConfigError, match=r"broken\.yaml"):
        load_config_file(path)


def test_a_missing_file_is_said_and_which_variable_named_it(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(ConfigError, match=r"none\.yaml.*No such file"):
        load_config_file(missing)
    with pytest.raises(ConfigError, match=r"^ADAPTIVE_SPEC_CONFIG: .*No such file"):
        config_from_environment({"ADAPTIVE_SPEC_CONFIG": str(missing)})


@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_bare_on_or_off_means_what_it_says_in_yaml(mode: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"mode: {mode}\npolicy: off\n")
    config = load_config_file(tmp_path / "c.yaml")
    assert (config.mode, config.policy) == (mode, "off")


@pytest.mark.parametrize(
    ("name", "options", "named"),
    [
        ("static", {"k": -1}, "`k`|k"),
        ("static", {"kk": 1}, "kk"),
        ("batch_table", {}, "table"),
        ("batch_table", {"table": [[2, 4, 1]]}, "begin at batch size 1"),
        ("batch_table", {"table": [[1, 4, 3], [4, 8, 1]]}, "overlaps"),
        ("goodput", {"discount": 2}, "discount"),
    ],
)
def test_bad_policy_options_name_the_option(
    name: str, options: dict[str, object], named: str
) -> None:
    with pytest.raises(PolicyError, match=named):
        build_policy(name, options, baselines=True)


def test_an_unknown_policy_is_answered_with_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="goodput"):
        build_policy("goodputt")
    for path in ("no.such.module:Policy", "os:nothing", ":", ".:x"):
        with refused(PolicyError, path):
            build_policy(path)
    with pytest.raises(PolicyError, match="lacks"):
        policy_class("json:JSONDecoder")


def test_a_policy_can_be_named_by_dotted_path() -> None:
    policy = build_policy("adaptive_spec.policies.static:StaticPolicy", {"k": 1})
    assert policy.name == "static"
