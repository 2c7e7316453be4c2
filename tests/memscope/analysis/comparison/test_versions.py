"""Which versions a recording says it was made with."""

from __future__ import annotations

from memscope.analysis.comparison.versions import MOST_VERSIONS, find_versions


def test_what_the_program_says_of_itself_counts():
    facts = {
        "versions": {"torch": "2.11.0", "python": "3.12.3"},
        "torch.version": {"torch": "2.11", "cuda": "13.0"},
        "nvml.driver": {"driver": "580.1"},
    }
    assert find_versions(facts) == {
        "driver": "580.1",
        "torch": "2.11.0",
        "cuda": "13.0",
        "python": "3.12.3",
    }


def test_facts_of_another_shape_are_passed_by():
    assert find_versions({"versions": "2.11", "torch.version": ["2"], "nvml.driver": None}) == {}
    many = {str(number): "1" for number in range(10 * MOST_VERSIONS)}
    assert len(find_versions({"versions": many})) == MOST_VERSIONS
