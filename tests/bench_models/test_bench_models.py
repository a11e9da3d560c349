"""The bench models: build, exactness of the expansion, prompts, sizes."""

import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LARGEST_COMMITTED_BYTES = 16_000_000


def bench(module: str) -> types.ModuleType:
    return importlib.import_module(f"benchmarks.bench_pair.{module}")


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """All models, built once."""
    pytest.importorskip("torch", reason="building the bench models needs torch")
    pytest.importorskip("safetensors", reason="building the bench models needs safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield bench("build").build(tmp_path_factory.mktemp("models"))


def load(folder: Path) -> object:
    torch = pytest.importorskip("torch", reason="comparing logits needs torch")
    transformers = pytest.importorskip("transformers", reason="comparing logits needs transformers")
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def logits(folder: Path) -> object:
    torch = pytest.importorskip("torch", reason="comparing logits needs torch")
    transformers = pytest.importorskip("transformers", reason="comparing logits needs transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = [texts[0] for _, texts in sorted(bench("prompts").load_prompts().items())]
    tokens = tokenizer(prompts, return_tensors="pt", truncation=True, max_length=48)["input_ids"]
    with torch.no_grad():
        return load(folder)(tokens).logits  # type: ignore[operator]


def test_expanded_target_computes_the_same_function(models: dict[str, Path]) -> None:
    small, big = logits(models["target"]), logits(models["target_big"])
    assert (small - big).abs().max().item() < 1e-3
    assert bool((small.argmax(-1) == big.argmax(-1)).all())


def test_poor_draft_differs_from_the_draft(models: dict[str, Path]) -> None:
    good, poor = logits(models["draft"]), logits(models["draft_poor"])
    assert good.shape == poor.shape
    agreement = (good.argmax(-1) == poor.argmax(-1)).float().mean().item()
    assert 0.02 < agreement < 0.9


def test_eagle_has_the_tensors_vllm_reads(models: dict[str, Path]) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    names = set(safetensors.load_file(models["eagle"] / "model.safetensors"))
    assert "fc.weight" in names
    assert not any("input_layernorm" in name or "embed_tokens" in name for name in names)
    config = json.loads((models["eagle"] / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]


def test_all_forms_of_the_target_split_text_alike(models: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    texts = [texts[0] for texts in bench("prompts").load_prompts().values()]
    split = [
        transformers.AutoTokenizer.from_pretrained(models[name])(texts)["input_ids"]
        for name in ("target", "mtp", "target_big")
    ]
    assert all(each == split[0] for each in split)


def test_every_model_is_a_complete_folder(models: dict[str, Path]) -> None:
    assert set(models) == set(bench("names").MODELS)
    for folder in models.values():
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            assert (folder / name).is_file(), folder / name


def test_building_again_changes_nothing(models: dict[str, Path]) -> None:
    out_dir = models["target"].parent
    before = {path: path.stat().st_mtime_ns for path in out_dir.rglob("*")}
    assert bench("build").build(out_dir) == models
    assert {path: path.stat().st_mtime_ns for path in out_dir.rglob("*")} == before


def test_a_stale_model_is_built_again(tmp_path: Path) -> None:
    build = bench("build")
    folder = build.build(tmp_path, ["draft"])["draft"]
    whole = (folder / "model.safetensors").read_bytes()
    (folder / build.FINGERPRINT).write_text("something else")
    (folder / "model.safetensors").write_bytes(b"")
    build.build(tmp_path, ["draft"])
    assert (folder / "model.safetensors").read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["draft"]


def test_prompts_of_all_kinds() -> None:
    prompts = bench("prompts").load_prompts()
    assert tuple(prompts) == bench("names").KINDS
    for texts in prompts.values():
        assert len(set(texts)) >= 96
        assert all(40 <= len(text) <= 400 for text in texts)


def test_committed_files_are_small() -> None:
    names = bench("names")
    files = [names.PROMPTS, *names.TOKENIZER.rglob("*"), *names.WEIGHTS.rglob("*")]
    assert sum(path.stat().st_size for path in files if path.is_file()) <= LARGEST_COMMITTED_BYTES
    assert {path.suffix for path in files if path.is_file()} == {".json", ".safetensors"}


def test_sampling_fix_is_applied_when_its_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = bench("vllm_cpu_sampling_fix")
    (tmp_path / "stand_in.py").write_text("def expand_batch_to_tokens():\n    return 'broken'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(fix, "MODULE", "stand_in")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    fix.apply()
    fix.apply()
    stand_in = importlib.import_module("stand_in")
    monkeypatch.delitem(sys.modules, "stand_in")
    assert stand_in.expand_batch_to_tokens is fix.expand_batch_to_tokens
    assert not any(isinstance(finder, fix._PatchOnImport) for finder in sys.meta_path)


def test_sampling_fix_expands_as_documented() -> None:
    torch = pytest.importorskip("torch", reason="the repair computes with torch")
    expand = bench("vllm_cpu_sampling_fix").expand_batch_to_tokens
    ends = torch.tensor([2, 5, 6], dtype=torch.int32)
    expanded = expand(torch.tensor([0.5, 0.0, 0.8]), ends, 6, replace_from=0, replace_to=1)
    assert torch.equal(expanded, torch.tensor([0.5, 0.5, 1.0, 1.0, 1.0, 0.8]))
