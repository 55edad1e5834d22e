"""Define the faults: failure, target, injection point and expected reaction.

A kind of fault is a function and a row of FAULTS in its module (process, network or storage
faults). A row of the matrix is a row of ROWS in matrix.py. One scenario runs all rows.
"""
