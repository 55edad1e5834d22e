"""The reference pages of claims: each claim, the tests that can refute it, and a defect per check.

docs/generate.py writes a page for each family of claims, from claims.toml, from the source of the
tests and from the defects that suite/meta injects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from suite.harness.core.settings import TAKEN_IN_BY
from suite.harness.tables.claims import Claim, Claims
from suite.meta import sources
from suite.meta.groups import CHECKS, RED

# Where the promises of the fault matrix name their checks.
PROMISES = sources.ROOT / "suite" / "harness" / "faults" / "promises.py"
# Functions of tests that judge numbers by their own rules, and the file that shows them failing.
OWN_RULES = {
    "in_range": "suite/meta/test_published.py",
    "require_requested_backend": "suite/meta/test_backends.py",
}


@dataclass(frozen=True)
class Test:
    """A test function: its file and name, its claims and the checks that it calls.

    `option`: the option of pytest without which a run leaves the test out; "" if there is none.
    """

    path: Path
    name: str
    claims: tuple[str, ...]
    checks: tuple[str, ...]
    option: str


def tests() -> Iterator[Test]:
    """Yield all tests that run trainers, parsed from their source."""
    for path in sources.files(*sources.TESTS):
        own = functions(path)
        helpers = {name: node for used in _helpers(path) for name, node in functions(used).items()}
        for name, node in own.items():
            if name.startswith("test_"):
                called = dict.fromkeys(_checks(node, helpers | own))
                yield Test(path, name, tuple(_claims(node)), tuple(called), _option(node))


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """Return the functions that a file defines, by name."""
    return {n.name: n for n in sources.tree(path).body if isinstance(n, ast.FunctionDef)}


def _helpers(path: Path) -> Iterator[Path]:
    """Yield the files of helpers that a benchmark imports."""
    for node in sources.tree(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("suite.benchmarks."):
            yield sources.ROOT / f"{str(node.module).replace('.', '/')}.py"


def _claims(function: ast.FunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.claim":
            yield from (a.value for a in decorator.args if isinstance(a, ast.Constant))  # type: ignore[misc]


def _option(function: ast.FunctionDef) -> str:
    marks = {
        ast.unparse(decorator).removeprefix("pytest.mark.") for decorator in function.decorator_list
    }
    return " ".join(row.flag for mark, row in TAKEN_IN_BY.items() if mark in marks)


def _checks(function: ast.AST, others: Mapping[str, ast.FunctionDef]) -> Iterator[str]:
    """Yield the checks and OWN_RULES that a test calls, also through functions of its file."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.split(".")[-1] in CHECKS or called in OWN_RULES:
                yield called.split(".")[-1]
            elif called in others:
                yield from _checks(others[called], others)
            elif called == "promises.judge":
                yield from _checks(sources.tree(PROMISES), {})


@dataclass(frozen=True)
class Listed:
    """A claim with the tests that name it; `anchor` is its stable place on its family's page."""

    claim: Claim
    tests: tuple[Test, ...]

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def anchor(self) -> str:
        return self.id.replace("/", "-")


def families() -> dict[str, list[Listed]]:
    """Return the claims of each family, in the order of claims.toml."""
    by_claim: dict[str, list[Test]] = {}
    for test in tests():
        for claim in test.claims:
            by_claim.setdefault(claim, []).append(test)
    found: dict[str, list[Listed]] = {}
    for claim in Claims.load().values():
        listed = Listed(claim, tuple(by_claim.get(claim.id, ())))
        found.setdefault(claim.family, []).append(listed)
    return found


def page(family: str) -> str:
    """Return the page of a family as Markdown for MyST."""
    lines = [f"# Claims: {family}", ""]
    for listed in families()[family]:
        lines += [*_section(listed), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(listed: Listed) -> Iterator[str]:
    claim = listed.claim
    versions = f"TensorFlow {claim.tensorflow}" + (f", {claim.keras}" if claim.keras else "")
    yield f"({listed.anchor})="
    yield f"## {listed.id}"
    yield ""
    yield f"{claim.text} ([{claim.origin}]({claim.url}))"
    yield ""
    yield f"{versions}; {', '.join(f'`{name}`' for name in claim.trainers)}."
    yield ""
    if not listed.tests:
        yield "- No test: none of its approaches has a trainer."
    for test in listed.tests:
        where = test.path.relative_to(sources.ROOT).as_posix()
        yield f"- `{test.name}` in `{where}`"
        yield from (f"  - {_failing(check)}" for check in test.checks)
        if not test.checks:
            yield "  - measured only"


def _failing(check: str) -> str:
    """Return a check with the defect that makes it fail."""
    if check in OWN_RULES:
        return f"`{check}`, shown failing in `{OWN_RULES[check]}`"
    _, defect = RED[check]
    return f"`{check}` fails for a trainer that *{defect.replace('_', ' ')}*"
