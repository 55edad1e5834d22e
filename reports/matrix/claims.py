"""The sentences of the claims, for readers of the support matrix.

They are read from the file that `--claims` names, by default `suite/claims.toml` of this checkout.
A run directory holds only the ids of claims, and this package does not import the suite, whose own
reader checks the table. Without the file, claims are shown by their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from reports.core import toml
from reports.rundir.frame import BadInput

DEFAULT = Path(__file__).resolve().parents[2] / "suite" / "claims.toml"


@dataclass(frozen=True)
class Claim:
    """One promise; a claim that is only known by its id has empty fields."""

    id: str
    text: str = ""
    origin: str = ""
    url: str = ""
    tensorflow: str = ""  # PEP 440 specifier of the versions for which it is made
    keras: str = ""  # flavors for which it is made; "" is any
    since: str = ""  # version since which it holds; "" if not recorded
    option: str = ""  # the option of pytest that its tests need, which no usual run has
    trainers: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        return self.id.split("/")[0]

    def is_made_for(self, tensorflow: str) -> bool:
        """Return True if the promise is made for this version of TensorFlow."""
        return SpecifierSet(self.tensorflow).contains(tensorflow, prereleases=True)


@dataclass(frozen=True)
class Claims:
    """All promises by id, and all approaches about which there are promises."""

    by_id: Mapping[str, Claim]
    approaches: tuple[str, ...] = ()

    def get(self, key: str) -> Claim:
        return self.by_id.get(key) or Claim(key)


def load(path: Path | None) -> Claims:
    """Read the table; raise BadInput if it is not a table of claims.

    Without a path, return no claims if this checkout has no table.
    """
    if path is None and not DEFAULT.is_file():
        return Claims({})
    path = path or DEFAULT
    try:
        content = toml.loads(path.read_text("utf-8"))
        rows = [_claim(row) for row in content.get("claim", ())]
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
    except (AttributeError, KeyError, TypeError, InvalidSpecifier) as error:
        raise BadInput(f"{path} is not a table of claims: {error}") from error
    return Claims({row.id: row for row in rows}, tuple(content.get("approaches", ())))


def _claim(row: Mapping[str, str]) -> Claim:
    SpecifierSet(row["tensorflow"])  # raises InvalidSpecifier
    optional = {name: row[name] for name in ("keras", "since", "option") if name in row}
    names = ("id", "text", "origin", "url", "tensorflow")
    return Claim(*(row[name] for name in names), **optional, trainers=tuple(row["trainers"]))
