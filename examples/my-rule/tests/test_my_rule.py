"""`my_rule` keeps the contract of a policy."""

from adaptive_spec import check_policy
from my_rule import MyRule, MyRuleOptions


def test_the_contract_is_kept() -> None:
    """`check_policy` raises with one line where it is not."""
    report = check_policy(lambda seed: MyRule(MyRuleOptions(), seed=seed))
    print(report)
