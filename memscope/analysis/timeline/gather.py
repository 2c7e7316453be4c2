"""Small batches put together: a fold costs as much for a hundred rows as for some thousand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from memscope.reader.scanner import Batch

GATHERED_ROWS = 1 << 16
GATHERED_BYTES = 1 << 26


def gather(batches: Iterable[Batch]) -> Iterator[tuple[Batch, int]]:
    """Batches of about ``GATHERED_ROWS`` rows, and of how many each was made."""
    waiting: list[Batch] = []
    rows = size = 0
    for batch in batches:
        if waiting and waiting[-1].is_thinned != batch.is_thinned:
            yield _join(waiting), len(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.rows
        size += batch.record.nbytes
        if rows >= GATHERED_ROWS or size >= GATHERED_BYTES:
            yield _join(waiting), len(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _join(waiting), len(waiting)


def _join(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches([batch.record for batch in batches]).combine_chunks()
    records = table.to_batches()
    if not records:
        return batches[0]
    return Batch(records[0], batches[-1].sequence, is_thinned=batches[-1].is_thinned)
