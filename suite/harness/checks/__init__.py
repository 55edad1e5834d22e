"""Define the checks: pure functions over histories, one module for each kind of promise."""
