"""Reads the run directories that `pytest suite/` leaves behind and turns them into reports.

Knows nothing of TensorFlow and nothing of the suite: a run directory is all it reads, so that a
run made elsewhere, or by another engine, reports the same.
"""
