import pytest

from adaptive_spec.errors import PolicyError
from adaptive_spec.sim.policy_choice import parse_policy


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("goodput", "goodput", {}),
        ("static:k=3", "static", {"k": 3}),
        (
            "goodput:confidence=false,prior_hazard=0.6",
            "goodput",
            {"confidence": False, "prior_hazard": 0.6},
        ),
        ("batch_table:table=[[1,4,5],[5,64,2]]", "batch_table", {"table": [[1, 4, 5], [5, 64, 2]]}),
        ("package.module:Class", "package.module:Class", {}),
        ("package.module:Class:a=1", "package.module:Class", {"a": 1}),
        ("goodput:profile=costs/h100.json", "goodput", {"profile": "costs/h100.json"}),
        ('mine:text="a,b",more={"x": 1}', "mine", {"text": "a,b", "more": {"x": 1}}),
    ],
)
def test_name_and_options_are_read(text, name, options):
    choice = parse_policy(text)
    assert (choice.text, choice.name, choice.options) == (text, name, options)


def test_an_option_without_a_value_is_named():
    with pytest.raises(PolicyError, match="'confidence' is not key=value"):
        parse_policy("goodput:prior_hazard=0.9,confidence")


def test_a_colon_without_options_is_named():
    with pytest.raises(PolicyError, match="nothing follows the colon"):
        parse_policy("static:")


def test_an_unknown_option_is_named_when_built():
    with pytest.raises(PolicyError, match=r"static.*`kk`.*keys are k"):
        parse_policy("static:kk=3").build(0)
