"""`my_policy` keeps the contract of a policy."""

from adaptive_spec import check_policy
from my_policy_policy import MyPolicyPolicy, MyPolicyPolicyOptions


def test_the_contract_is_kept():
    report = check_policy(lambda seed: MyPolicyPolicy(MyPolicyPolicyOptions(), seed=seed))
    print(report)
