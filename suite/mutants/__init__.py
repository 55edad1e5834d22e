"""Mutants: files of the checkout with one mistake each, and the tests that find them."""
