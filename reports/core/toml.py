"""The reader of TOML: the standard library's, or its equal in Python 3.10."""

import sys

if sys.version_info >= (3, 11):
    from tomllib import TOMLDecodeError, loads
else:
    from tomli import TOMLDecodeError, loads  # pyright: ignore[reportMissingImports]

__all__ = ["TOMLDecodeError", "loads"]
