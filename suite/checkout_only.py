"""Refuses to build anything but an editable install: setuptools loads this file by pyproject.toml.

The suite is used from its checkout, where trainers are started by file path, and its packages have
names (`suite`, `reports`) that must not lie in site-packages, where they could shadow others.
"""

from setuptools.command.build_py import build_py

REFUSED = "tf-distribute-conformance is used from its checkout: pip install -e ."


class CheckoutOnly(build_py):
    """Collects the packages for an editable install; refuses to copy them for any other."""

    def run(self) -> None:
        if not self.editable_mode:
            raise SystemExit(REFUSED)
        super().run()
