"""Rows on their way to the file."""

from __future__ import annotations

import json

import pytest

from memscope.events import Kind
from memscope.format.frames import event_schema
from memscope.recorder.rows import encode_rows, make_row


@pytest.mark.parametrize("data", [0, 2, 1.5, True, [1], {"a": 1}, "text"])
def test_a_batch_of_one_fact_keeps_its_data(data: object) -> None:
    batch = encode_rows([make_row(Kind.FACT, "exit_code", data)], 0, event_schema({}))
    assert json.loads(batch.column("data")[0].as_py()) == data


def test_equal_data_of_other_types_stays_apart() -> None:
    rows = [make_row(Kind.FACT, "key", data) for data in (1, True, 1.0)]
    batch = encode_rows(rows, 0, event_schema({}))
    assert batch.column("data").to_pylist() == ["1", "true", "1.0"]
