import msgspec
import pytest

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.hardware.profile_file import write_hardware_profile
from adaptive_spec.sim.hardware.registry import hardware, hardware_profile


def test_a_profile_is_found_by_name_and_by_path(tmp_path):
    path = tmp_path / "mine.json"
    profile = msgspec.structs.replace(hardware_profile("a100-llama-8b"), name="mine")
    write_hardware_profile(profile, path)
    assert [hardware(name).name for name in ("h100-llama-8b", str(path))] == [
        "h100-llama-8b",
        "mine",
    ]


@pytest.mark.parametrize("content", ["", "[1, 2]", "{nonsense", '{"name": "x"}'])
def test_a_file_that_is_no_profile_is_refused_by_name(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"other\.json"):
        hardware(str(path))


def test_a_roofline_is_found_by_gpu_and_model():
    machine = hardware("roofline:h200:llama-3.1-70b:tp4:fp8")
    assert machine.weight_bytes == pytest.approx(72.7e9, rel=0.01)
    assert machine.verify_seconds(1, 1, 0, 0, 0) < 0.02


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h900", "unknown hardware 'h900': one of a100-llama-8b, .*roofline:GPU:MODEL"),
        ("missing.json", "missing.json"),
        ("roofline:h100", "unknown model ''"),
        ("roofline:h900:llama-3.1-8b", "unknown GPU 'h900'"),
        ("roofline:h100:llama-3.1-8b:tpx", "'tpx' is neither tpN nor"),
        ("roofline:h100:llama-3.1-8b:tp0", "'tp0' is neither tpN nor"),
    ],
)
def test_unknown_hardware_is_refused_with_what_there_is(name, message):
    with pytest.raises(ConfigError, match=message):
        hardware(name)
