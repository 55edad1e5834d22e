"""Campaigns: recorded runs from which the documentation quotes, and trials of the gate on them."""
