"""Write suite/CLAIMS.md: each claim, the tests that can refute it, and a defect for each check.

`python -m suite.meta.claims_page` regenerates the page from claims.toml, from the source of the
tests and from the defects that suite/meta injects. A test fails when the page is out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from suite.harness.tables.claims import Claim, Claims
from suite.meta import sources
from suite.meta.groups import CHECKS, RED

PAGE = sources.ROOT / "suite" / "CLAIMS.md"
# Where the promises of the fault matrix name their checks.
PROMISES = sources.ROOT / "suite" / "harness" / "faults" / "promises.py"
# Functions of tests that judge numbers by their own rules, and the file that shows them failing.
OWN_RULES = {
    "in_range": "suite/meta/test_published.py",
    "require_requested_backend": "suite/meta/test_backends.py",
}
HEAD = """# Claims, and what refutes them

Each promise of [claims.toml](claims.toml), the tests that can fail for it, the checks that these
make, and for each check the name of a defect that `suite/meta` plants in a fake trainer, or in a
history made by hand, to see exactly that check go red. `python -m suite.meta.claims_page` wrote it.
"""


@dataclass(frozen=True)
class Test:
    """A test function: its file and name, its claims and the checks that it calls."""

    path: Path
    name: str
    claims: tuple[str, ...]
    checks: tuple[str, ...]


def tests() -> Iterator[Test]:
    """Yield all tests that run trainers, parsed from their source."""
    for path in sources.files(*sources.TESTS):
        own = functions(path)
        helpers = {name: node for used in _helpers(path) for name, node in functions(used).items()}
        for name, node in own.items():
            if name.startswith("test_"):
                called = dict.fromkeys(_checks(node, helpers | own))
                yield Test(path, name, tuple(_claims(node)), tuple(called))


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


def page() -> str:
    """Return the whole page as Markdown."""
    by_claim: dict[str, list[Test]] = {}
    for test in tests():
        for claim in test.claims:
            by_claim.setdefault(claim, []).append(test)
    lines = [HEAD]
    family = ""
    for claim in Claims.load().values():
        if claim.family != family:
            family = claim.family
            lines += [f"## {family}", ""]
        lines += [*_of(claim, by_claim.get(claim.id, [])), ""]
    return "\n".join(lines).rstrip() + "\n"


def _of(claim: Claim, shown_by: list[Test]) -> Iterator[str]:
    yield f"**`{claim.id}`** {claim.text} ([{claim.origin}]({claim.url}))"
    yield ""
    if not shown_by:
        yield "- No test: none of its approaches has a trainer."
    for test in shown_by:
        where = test.path.relative_to(PAGE.parent).as_posix()
        yield f"- [{test.name}]({where}): {'; '.join(map(_red_by, test.checks)) or 'measured only'}"


def _red_by(check: str) -> str:
    if check in OWN_RULES:
        name = Path(OWN_RULES[check]).name
        return f"`{check}`, red in [{name}](meta/{name})"
    _, defect = RED[check]
    return f"`{check}`, red for *{defect.replace('_', ' ')}*"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
