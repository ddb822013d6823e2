"""Tests the labels of group members in errors and tables."""

import pytest

from millstream.sdk.admin.group_results import GroupMember


@pytest.mark.parametrize(
    ("member_id", "shown"),
    [
        ("iterators/a", "gateway iterators/a"),
        ("worker-on-host-seven", "gateway worker-on-host-seven"),
        ("gateway-01234567-89ab-4cde-8f01-23456789abcd", "gateway 6789abcd"),
        ("01234567-89ab-4cde-8f01-23456789abcd", "gateway 6789abcd"),
        ("Kf0aZ3sTTpWq2bXc9dEf-A", "gateway Xc9dEf-A"),
        ("", "gateway"),
    ],
)
def test_only_generated_member_ids_are_cut_in_a_label(member_id: str, shown: str) -> None:
    member = GroupMember(member_id, None, "gateway", "/127.0.0.1", 1, (), ())
    assert member.label == shown


def test_a_static_member_is_labelled_with_its_instance_id() -> None:
    assert GroupMember("a-1", "till-7", "gateway", "/127.0.0.1", 1, (), ()).label == "till-7"
