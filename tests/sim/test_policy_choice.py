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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("goodput:prior_hazard=0.9,confidence", "'confidence' is not key=value"),
        ("static:", "nothing follows the colon"),
        ("static:kk=3", r"static.*`kk`.*keys are k"),
    ],
)
def test_what_is_wrong_is_named(text, said):
    with pytest.raises(PolicyError, match=said):
        parse_policy(text).build(0)
