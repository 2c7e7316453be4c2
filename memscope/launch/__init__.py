"""Records a program of someone else in its own interpreter, with the processes it starts.

This is where recorder and default probes meet: `memscope.record()`, `memscope run`, and the checks
of `memscope doctor`. Verbs and the pytest plugin may import it.
"""
