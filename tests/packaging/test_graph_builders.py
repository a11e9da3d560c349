"""What scripts/recipes.py reads of attention backends; a change of their text is noticed."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from graph_builders import UnreadError, has_own_decode_path, replays_mixed

TEXT = """
class Base(Builder[Data]):
    _cudagraph_support: ClassVar[Support] = AttentionCGSupport.UNIFORM_BATCH

class Inherits(Base):
    pass

class ByVersion(Builder[Data]):
    _cudagraph_support = (
        AttentionCGSupport.ALWAYS
        if get_flash_attn_version() == 3 or current_platform.is_xpu()
        else AttentionCGSupport.UNIFORM_BATCH
    )

class ByMethod(Base):
    @classmethod
    def get_varlen_cudagraph_max_query_len(cls, config, spec):
        return 8

class Elsewhere(module.Other[Data]):
    pass

class Unread(Base):
    _cudagraph_support = computed()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(TEXT)
    (tmp_path / "models/k3/nvidia/specialized_decode").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "more", "wanted"),
    [
        ("Base", {}, False),
        ("Inherits", {}, False),
        ("ByVersion", {"flash_attention": 3}, True),
        ("ByVersion", {"flash_attention": 4}, False),
        ("ByMethod", {}, True),
        ("Elsewhere", {"inherits": [{"file": "a.py", "class": "ByMethod"}]}, True),
    ],
)
def test_a_builders_statement_is_read(
    package: Path, name: str, more: dict[str, Any], wanted: bool
) -> None:
    assert replays_mixed(package, {"file": "a.py", "class": name} | more) is wanted


@pytest.mark.parametrize(
    ("builder", "named"),
    [
        ({"file": "b.py", "class": "Base"}, "b.py"),
        ({"file": "a.py", "class": "Gone"}, "Gone"),
        ({"file": "a.py", "class": "Elsewhere"}, "Elsewhere states no"),
        ({"file": "a.py", "class": "Unread"}, "computed"),
    ],
)
def test_what_is_not_where_it_was_is_named(
    package: Path, builder: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnreadError, match=named):
        replays_mixed(package, builder)


def test_a_decode_path_of_a_models_own_is_found(package: Path) -> None:
    assert has_own_decode_path(package, "k3")
    assert not has_own_decode_path(package, "k2")
    assert not has_own_decode_path(package, None)
