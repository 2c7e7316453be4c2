"""Where each layer's weights were, at the moment that the metrics of a window are of."""

from __future__ import annotations

from dataclasses import dataclass

from memscope.analysis.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class LayerStates:
    """For each layer "resident", "in flight", "evicted" or "unused"; lm_head left out.

    ``step``: the last step, at whose end they were so; None before the first one's end, when they
    are so now. ``unnamed_bytes``: in flight by the reading of that moment, while the row that
    names their layer is not written before the upload is over.
    """

    states: tuple[str, ...] = ()
    step: int | None = None
    unnamed_bytes: int = 0


def find_layer_states(timeline: Timeline) -> LayerStates:
    """Empty where the events by which layers are followed are not all there."""
    if not timeline.is_window_known:
        return LayerStates()
    window, steps = timeline.window, timeline.steps
    states = window.states(timeline.layers or window.layers_seen)
    if not len(steps):
        return LayerStates(states)
    read = int(steps.in_flight_bytes[-1])
    return LayerStates(states, int(steps.step[-1]), max(read - window.flight_bytes, 0))
