"""Watch an unmodified TensorFlow program from outside, and write the suite's events for it.

`observe.py` starts it. Standard library, TensorFlow and numpy, in Python 3.8 syntax. A module for
each concern; `table.py` lists all hooks.
"""
