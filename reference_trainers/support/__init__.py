"""Modules that the observer and the small programs of `suite/programs` share; no trainer needs one.

They run with TensorFlow, numpy and the standard library, in Python 3.8 syntax.
"""
