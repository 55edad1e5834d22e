"""Checks: pure functions over histories, a module for each kind of promise."""
