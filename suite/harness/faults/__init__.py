"""Faults: what is done to which task and when, and what its peers are expected to do.

A kind of fault is a function and a row of FAULTS in its module (process, network or storage
faults). A row of the matrix is a row of ROWS in matrix.py; one scenario runs them all.
"""
