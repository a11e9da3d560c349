"""What is checked before anything is switched on; no engine is built."""

import functools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptive_spec import Capability, Config, Level
from adaptive_spec.adapters.vllm import doctor
from adaptive_spec.adapters.vllm.capability import MISSING, detect
from adaptive_spec.adapters.vllm.facts import AHEAD, ALONE, COLD, RECURRENT, SPARSE_MLA, V2_DEPTH
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.errors import ConfigError, PolicyError, UnsupportedEngineError
from tests.refused import refused

TETRIS = "tests.losslessness.exact.rules:Tetris"
"""A rule for greedy drafts only, by a dotted path, as another package's may be named."""


def test_doctor_works_without_importing_the_engine() -> None:
    code = (
        "import sys; from adaptive_spec.adapters.vllm.doctor import describe; describe(); "
        "assert not {'vllm', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_doctor_says_what_the_environment_switches_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ADAPTIVE_SPEC_CONFIG", raising=False)
    assert "not set" in doctor.describe().enabled
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"mode": "shadow", "policy": "static"}))
    monkeypatch.setenv("ADAPTIVE_SPEC_CONFIG", str(path))
    assert "mode shadow, policy static" in doctor.describe().enabled
    path.write_text(json.dumps({"modus": "on"}))
    assert doctor.describe().enabled.startswith("error: ")


def test_plugin_module_imports_nothing_heavy_and_registers_twice() -> None:
    code = (
        "import sys, adaptive_spec.adapters.vllm.plugin as plugin; "
        "assert not {'vllm', 'torch', 'numpy', 'msgspec', 'yaml'} & set(sys.modules); "
        "sys.modules['vllm'] = None; plugin.register(); plugin.register()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


FAKE_VLLM = """
import logging, sys, types
import adaptive_spec.adapters.vllm.plugin as plugin
class EngineArgs:
    additional_config = {ours!r}
    def create_engine_config(self): return "made by vLLM"
for name in ("vllm", "vllm.engine", "vllm.engine.arg_utils"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["vllm.engine.arg_utils"].EngineArgs = EngineArgs
plugin.register(); plugin.register()
before = set(sys.modules)
assert EngineArgs().create_engine_config() == "made by vLLM"
"""


@pytest.mark.parametrize(
    ("given", "checked", "said"),
    [
        ({"other": 1}, "assert set(sys.modules) == before and 'numpy' not in before", ""),
        ({"adaptive-spec": {}}, "", "adaptive_spec: nothing reads the key 'adaptive-spec'"),
    ],
    ids=["no module is imported", "a wrong key is logged"],
)
def test_a_configuration_without_our_key_is_made_without_our_code(
    given: dict[str, Any], checked: str, said: str
) -> None:
    code = FAKE_VLLM.replace("{ours!r}", repr(given)) + checked
    environment = {key: value for key, value in os.environ.items() if "ADAPTIVE_SPEC" not in key}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, env=environment, capture_output=True
    )
    assert done.stderr.decode().startswith(said)


def test_a_policy_for_greedy_drafts_is_refused_before_an_engine_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from adaptive_spec.adapters.vllm import gate

    capability = Capability(level=Level.VERIFY, max_draft_tokens=4, sampled_drafts=True)
    found = gate.Support(capability=capability)
    monkeypatch.setattr(gate, "detect", lambda *_: found)
    with pytest.raises(PolicyError, match=r"'tetris' is for greedy drafts only"):
        gate.switch_on(SimpleNamespace(), Config(policy=TETRIS))


@pytest.mark.engine
@pytest.mark.every_version
class TestGate:
    """The wrapped `EngineArgs.create_engine_config`."""

    @pytest.fixture(autouse=True)
    def _environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from engines import prepare_environment

        prepare_environment()
        monkeypatch.delenv("ADAPTIVE_SPEC_CONFIG", raising=False)

    def configure(
        self,
        models: dict[str, Path],
        adaptive: Any = None,
        method: str | None = "ngram",
        **options: Any,
    ) -> Any:
        from engines import speculative_config
        from vllm.engine.arg_utils import EngineArgs

        if adaptive is not None:
            options["additional_config"] = {"adaptive_spec": adaptive, "other": 1}
        if method is not None:
            options["speculative_config"] = speculative_config(models, method)
        arguments = EngineArgs(
            model=str(models["target"]), max_model_len=256, enforce_eager=True, **options
        )
        return arguments.create_engine_config()

    @pytest.mark.parametrize(
        ("adaptive", "named"),
        [
            ({"policies": "static"}, "policies"),
            ({"mode": "maybe"}, "$.mode"),
            ({"policy": "static", "options": {"k": -1}}, "$.k"),
            ({"policy": "static", "options": {"q": 1}}, "q"),
            ({"policy": "no_such_policy"}, "no_such_policy"),
            ({"policy": "no_such_module:Policy"}, "no_such_module"),
            ({"profile": "/no/such/file.json"}, "profile"),
            ({"seed": "one"}, "$.seed"),
            (7, "--additional-config adaptive_spec"),
            ({"trace": {"directori": "x"}}, "directori"),
        ],
    )
    def test_bad_configuration_is_one_line_and_nothing_is_switched_on(
        self, models: dict[str, Path], adaptive: Any, named: str
    ) -> None:
        with refused((ConfigError, PolicyError), named):
            self.configure(models, adaptive)

    def test_missing_file(self, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADAPTIVE_SPEC_CONFIG", "/no/such/file.yaml")
        with pytest.raises(ConfigError, match=r"ADAPTIVE_SPEC_CONFIG: .*'/no/such"):
            self.configure(models)

    def test_an_untested_version_runs_with_a_warning_where_allowed(
        self, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, said: Any
    ) -> None:
        import vllm

        monkeypatch.setattr(vllm, "__version__", "0.99.0")
        config = self.configure(models, {"policy": "static"})
        assert config.scheduler_config.scheduler_cls.endswith(".AdaptiveScheduler")
        assert "0.99.0 is untested" in said()[0]
        with pytest.raises(UnsupportedEngineError, match=r"0\.99\.0 is untested"):
            self.configure(models, {"policy": "static", "allow_untested": False})

    def test_without_speculation_it_is_inert_with_one_line(
        self, models: dict[str, Path], said: Any
    ) -> None:
        config = self.configure(models, {"policy": "static"}, method=None)
        assert config.scheduler_config.scheduler_cls is None
        import vllm

        warning = VERSIONS.admit(vllm.__version__)
        [line] = [line for line in said() if not warning or warning not in line]
        assert "add --speculative-config" in line

    @pytest.mark.parametrize("adaptive", [None, {"mode": "off"}])
    def test_not_enabled_changes_nothing(self, models: dict[str, Path], adaptive: Any) -> None:
        config = self.configure(models, adaptive)
        assert config.scheduler_config.scheduler_cls is None
        assert not hasattr(config.scheduler_config, "adaptive_spec")
        assert "adaptive_spec" not in config.additional_config

    def test_enabled_names_our_scheduler_and_keeps_the_hash(self, models: dict[str, Path]) -> None:
        config = self.configure(models, {"policy": "static"})
        assert config.scheduler_config.scheduler_cls.endswith(".AdaptiveScheduler")
        assert config.additional_config == {"other": 1}
        plain = self.configure(models, additional_config={"other": 1})
        assert config.compute_hash() == plain.compute_hash()

    def test_additional_config_wins_over_the_environment(
        self, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        path = tmp_path / "spec.yaml"
        path.write_text("policy: 'off'\n")
        monkeypatch.setenv("ADAPTIVE_SPEC_CONFIG", str(path))
        assert self.configure(models).scheduler_config.adaptive_spec.policy == "off"
        config = self.configure(models, {"policy": "static"})
        assert config.scheduler_config.adaptive_spec.policy == "static"

    def test_a_scheduler_of_the_users_is_subclassed(self, models: dict[str, Path]) -> None:
        from tests.vllm.support.user_schedulers import Counting

        for given in ("tests.vllm.support.user_schedulers.Counting", Counting):
            config = self.configure(models, {"policy": "static"}, scheduler_cls=given)
            ours = config.scheduler_config.get_scheduler_cls()
            assert issubclass(ours, Counting)
            names = [each.__name__ for each in ours.__mro__]
            assert names.index("AdaptiveScheduling") < names.index("Counting")
            assert pickle.loads(pickle.dumps(ours)) is ours
            assert not detect(config).shadow

    def test_one_that_replaces_what_steers_is_watched_only(self, models: dict[str, Path]) -> None:
        from tests.vllm.support.user_schedulers import Replacing

        name = "tests.vllm.support.user_schedulers.Replacing"
        config = self.configure(models, {"policy": "static"}, scheduler_cls=name)
        assert issubclass(config.scheduler_config.get_scheduler_cls(), Replacing)
        assert detect(config).shadow == ("Replacing.schedule calls no method of vLLM's",)

    @pytest.mark.parametrize("name", ["builtins.dict", "no.such.Class"])
    def test_what_is_no_scheduler_of_vllms_is_refused(
        self, models: dict[str, Path], name: str
    ) -> None:
        with pytest.raises(ConfigError, match=f"--scheduler-cls {name}: "):
            self.configure(models, {"policy": "static"}, scheduler_cls=name)

    @pytest.fixture
    def config(self, models: dict[str, Path]) -> Any:
        """A configuration with a draft model, which is steered as it is."""
        made = self.configure(models, method="draft_model")
        assert not detect(made).shadow
        return made

    def test_capability_follows_the_method(self, models: dict[str, Path], config: Any) -> None:
        with_lookup = self.configure(models, method="ngram")
        for each, off_pass in ((config, True), (with_lookup, False)):
            found = detect(each).capability
            assert found.level is Level.FULL
            assert found.off_pass == off_pass

    def test_a_missing_feature_lowers_the_capability_and_is_said(
        self, config: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert detect(config).capability.cold_off
        lost = dict.fromkeys((AHEAD, COLD, RECURRENT, V2_DEPTH), "it has gone")
        setattr(config.scheduler_config, MISSING, lost)
        found = detect(config)
        assert not found.capability.cold_off
        assert found.capability.depth_follows, "this is model runner V1"
        assert set(found.missing) == {AHEAD, COLD}, "the others have no use here"
        for feature in found.missing:
            assert f"this vLLM lacks {feature} (it has gone)" in found.notes
        monkeypatch.setattr(type(config.model_config), "is_hybrid", True)
        assert any("K = 0 would read stale" in reason for reason in detect(config).shadow)

    @pytest.mark.parametrize(
        ("part", "name", "value", "said"),
        [
            ("speculative", "rejection_sample_method", "synthetic", "synthetic"),
            ("speculative", "rejection_sample_method", "block", ""),  # keeps the distribution
            # Other controllers of vLLM's; the last is vllm#54801, which no version has.
            ("speculative", "draft_confidence_threshold", 0.5, "draft_confidence_threshold"),
            ("speculative", "skip_draft_when_k0", 0.5, "skip_draft_when_k0"),
            ("speculative", "num_speculative_tokens_per_seq_len", 0.5, "_per_seq_len"),
            ("parallel", "pipeline_parallel_size", 2, "vllm#52071"),
        ],
    )
    def test_untested_set_ups_only_watch(
        self, config: Any, part: str, name: str, value: Any, said: str
    ) -> None:
        object.__setattr__(getattr(config, f"{part}_config"), name, value)
        reasons = " ".join(detect(config).shadow)
        assert said in reasons
        assert bool(said) == bool(reasons)

    def test_a_hybrid_is_steered_with_and_without_prefix_caching(
        self, config: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(config.model_config), "is_hybrid", True)
        for cached in (False, True):
            config.cache_config.enable_prefix_caching = cached
            assert not detect(config).shadow

    def test_beside_another_plugins_controller_it_only_watches(
        self, models: dict[str, Path]
    ) -> None:
        added = {"dynamic_spec_config": {"policy": "hardware_aware"}}
        config = self.configure(models, method="draft_model", additional_config=added)
        assert "dynamic_spec_config" in " ".join(detect(config).shadow)

    @pytest.mark.parametrize("name", ["AsyncScheduler", "Scheduler"])
    def test_beside_a_plugin_that_patched_the_scheduler_it_only_watches(
        self, config: Any, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """chained-flow replaces `AsyncScheduler._update_after_schedule`."""
        from vllm.v1.core.sched import async_scheduler, scheduler

        module = async_scheduler if name == "AsyncScheduler" else scheduler
        owner = getattr(module, name)
        own = owner._update_after_schedule

        @functools.wraps(own)  # takes the name of vLLM's module with it
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return own(*args, **kwargs)

        monkeypatch.setattr(owner, "_update_after_schedule", replaced)
        [reason] = detect(config).shadow
        assert reason == f"{name}._update_after_schedule was replaced by another plugin"

    def test_another_kmax_of_a_parallel_drafter_is_said_to_need_another_cache(
        self, config: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """vllm#53366: the folder of compiled code is named without Kmax."""

        def said() -> bool:
            return "VLLM_CACHE_ROOT" in " ".join(detect(config).notes)

        speculation = config.speculative_config
        assert not said(), "a chain's code has no Kmax"
        monkeypatch.setattr(speculation, "parallel_drafting", True)
        assert said()
        hashed = type(speculation).compute_hash
        monkeypatch.setattr(
            type(speculation),
            "compute_hash",
            lambda self: f"{hashed(self)}-{self.num_speculative_tokens}",
        )
        assert not said(), "vLLM has mended it"

    def test_a_manager_of_draft_length_in_vllm_leaves_trimming_only(self, config: Any) -> None:
        setattr(config.scheduler_config, MISSING, {ALONE: "has DynamicSDDraftingManager"})
        found = detect(config)
        assert found.capability.level is Level.VERIFY
        assert "another controller" in " ".join(found.notes)

    def test_sparse_mla_without_the_mended_indexer_is_not_given_different_k(
        self, config: Any
    ) -> None:
        setattr(config.scheduler_config, MISSING, {SPARSE_MLA: "lack block_table_width"})
        assert not detect(config).shadow, "no sparse MLA model"
        config.model_config.hf_text_config.index_topk = 2048
        assert "indexer" in " ".join(detect(config).shadow)

    @pytest.mark.parametrize("lengths", ["SINGLE_ONLY", "UNIFORM", "VARLEN"])
    def test_mla_is_steered_where_its_attention_takes_mixed_k(
        self, config: Any, monkeypatch: pytest.MonkeyPatch, lengths: str
    ) -> None:
        from vllm.model_executor.layers.attention import mla_attention as mla

        monkeypatch.setattr(type(config.model_config), "use_mla", True)
        support = mla.QueryLenSupport[lengths]
        monkeypatch.setattr(mla.MLACommonMetadataBuilder, "query_len_support", support)
        assert not detect(config).shadow, "synchronous scheduling knows the length of a context"
        config.scheduler_config.async_scheduling = True
        found = detect(config).shadow
        assert bool(found) == (lengths != "VARLEN")
        one = "MLA decodes rows of one length only"  # which backend, depends on the CPU
        assert all(one in reason and "--no-async-scheduling" in reason for reason in found)

    @pytest.mark.parametrize("mode", ["on", "shadow"])
    def test_adaptive_verification_is_taken_over_where_decisions_act(self, mode: str) -> None:
        from adaptive_spec.adapters.vllm.gate import gated_config

        class AskedError(Exception):
            """What vLLM would resolve."""

        def resolve(arguments: Any) -> Any:
            raise AskedError(arguments.speculative_config["enable_adaptive_verification"])

        arguments = SimpleNamespace(
            additional_config={"adaptive_spec": {"mode": mode, "take_over": True}},
            speculative_config={"method": "dspark", "enable_adaptive_verification": True},
        )
        with pytest.raises(AskedError) as asked:
            gated_config(resolve, arguments)
        assert asked.value.args == (mode != "on",)

    def test_a_pipeline_scheduled_ahead_fixes_the_depth(self, config: Any) -> None:
        config.parallel_config.pipeline_parallel_size = 2
        config.scheduler_config.async_scheduling = True
        found = detect(config)
        assert found.capability.level is Level.VERIFY
        assert not found.capability.cold_off
        assert "pipeline parallelism" in " ".join(found.notes)
        assert not found.shadow

    @pytest.mark.parametrize("role", ["kv_producer", "kv_consumer", "kv_both"])
    def test_only_a_prefill_instance_is_inert(self, models: dict[str, Path], role: str) -> None:
        from vllm.config import KVTransferConfig

        transfer = KVTransferConfig(kv_connector="ExampleConnector", kv_role=role)
        config = self.configure(models, method="draft_model", kv_transfer_config=transfer)
        found = detect(config)
        assert ("prefill instance" in found.inert) == (role == "kv_producer")
        assert not found.shadow
