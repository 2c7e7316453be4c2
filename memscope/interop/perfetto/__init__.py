"""A recording as a trace that ui.perfetto.dev opens."""
