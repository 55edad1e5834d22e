"""`python -m reports upgrade`: what an upgrade breaks, and what it makes slower."""
