"""The fault table: what is done to whom and when, and what the others are to do.

A kind of fault is a function and a row in its module's FAULTS (processes, links, storage), a line
of the table is a row of ROWS in table.py; one scenario plays them all.
"""

from suite.harness.faults.injection import SCENES, Struck, scene
from suite.harness.faults.matrix import (
    ALL,
    ANYTHING,
    FAIL,
    FAULTS,
    FINISH,
    GO_ON,
    LOST,
    NOBODY,
    ONE_FEWER,
    ROWS,
    WAIT,
    Row,
)

__all__ = [
    "ALL",
    "ANYTHING",
    "FAIL",
    "FAULTS",
    "FINISH",
    "GO_ON",
    "LOST",
    "NOBODY",
    "ONE_FEWER",
    "ROWS",
    "SCENES",
    "WAIT",
    "Row",
    "Struck",
    "scene",
]
