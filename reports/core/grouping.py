"""Groups of measurements: rows that differ only in their value are one sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pandas as pd


def grouped(
    measurements: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], pd.DataFrame]]:
    """Yield each combination of the key columns, in sorted order, with its rows."""
    if measurements.empty:
        return
    for values, rows in measurements.groupby(list(keys), dropna=False, sort=True):
        yield dict(zip(keys, cast("tuple[Any, ...]", values), strict=True)), rows


def whole(value: Any) -> str:
    """Return a count as text; "" if it is missing."""
    return "" if pd.isna(value) else str(int(value))


def backends(requested: str, actual: str) -> str:
    """Return the requested backend and, if it differs, the actual one: `nccl → ring`."""
    if not actual or requested == actual:
        return "" if requested == "none" else requested
    return f"{requested or 'none'} → {actual}"


def circumstances(key: Mapping[str, Any]) -> str:
    """Return variant and fault of a sample in one cell; "" if there is neither."""
    return ", ".join(part for part in (key.get("variant"), key.get("fault")) if part)
