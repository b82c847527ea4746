"""A finished run as the report reads it: tables as pandas frames, documents as plain values."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq


class Run:
    """One run directory after the analysis.

    Raises:
        FileNotFoundError: the run has not been analysed.
    """

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir
        self.plan = self._document("plan.json")
        self.manifest = self._document("manifest.json")
        self.summary = self._document("summary.json")
        self._tables: dict[str, pd.DataFrame | None] = {}

    def _document(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.path / name).read_bytes())
        return document

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.plan["name"])

    @property
    def zero_ns(self) -> int:
        """The workload's zero, ns of CLOCK_MONOTONIC."""
        return int(self.manifest["zero_ns"])

    @property
    def duration_s(self) -> float:
        """The length of the publishing window."""
        return float(self.plan["experiment"]["workload"]["duration_s"])

    @cached_property
    def _underlay(self) -> dict[str, Any]:
        return self._document("underlay.json")

    @property
    def sources(self) -> list[str]:
        """Attributions of the data behind the underlay."""
        return list(self._underlay["sources"])

    @property
    def has_map(self) -> bool:
        """Whether every host has a place on the map."""
        return not bool(self.hosts()["latitude"].isna().any())

    def hosts(self) -> pd.DataFrame:
        """The hosts, index = host number: name, site, country, latitude, longitude (NaN without a map)."""
        columns = ["name", "site", "country", "latitude", "longitude"]
        return pd.DataFrame(self._underlay["hosts"]).reindex(columns=columns)

    def table(self, name: str) -> pd.DataFrame | None:
        """A table of the analysis, None when the run has none of that name."""
        if name not in self._tables:
            path = self.path / "tables" / f"{name}.parquet"
            self._tables[name] = pq.read_table(path).to_pandas() if path.exists() else None
        return self._tables[name]

    def achieved(self) -> pd.DataFrame | None:
        """The probes' rows, None on a testbed without probes."""
        path = self.path / "achieved.parquet"
        return pq.read_table(path).to_pandas() if path.exists() else None

    def physical_links(self) -> list[tuple[int, int]]:
        """Pairs of hosts with a connection that lived through the middle of the publishing window."""
        links = self._links_at_middle()
        return [] if links is None else sorted({(min(pair), max(pair)) for pair in links})

    def final_degrees(self) -> npt.NDArray[np.int64] | None:
        """(nodes,) physical neighbours of every node, None without link intervals."""
        links = self._links_at_middle()
        if links is None:
            return None
        neighbours: dict[int, set[int]] = {place["node"]: set() for place in self.plan["placement"]}
        for a, b in links:
            neighbours[a].add(b)
            neighbours[b].add(a)
        return np.array([len(found) for found in neighbours.values()])

    def _links_at_middle(self) -> list[tuple[int, int]] | None:
        conns = self.table("physical_links")
        if conns is None:
            return None
        at = self.zero_ns + int(self.duration_s * 5e8)
        alive = conns[(conns["from_ns"] <= at) & (conns["to_ns"] >= at)]
        return list(zip(alive["node"].astype(int), alive["peer"].astype(int), strict=True))

    def provenance(self) -> list[tuple[str, str]]:
        """What ran, on what: versions, kernel, hashes, instants of the phases."""
        manifest = self.manifest
        rows = [("run", str(manifest["run_id"]))]
        for group in ("versions", "kernel"):
            rows += [(f"{group}: {key}", str(value)) for key, value in sorted(manifest[group].items())]
        rows += [(f"SHA-256 of {key}", value) for key, value in sorted(manifest["hashes"].items())]
        for phase in manifest["phases"]:
            rows.append((f"phase {phase['name']}", f"{(phase['end_ns'] - phase['start_ns']) / 1e9:.2f} s"))
        rows += [(f"resource: {key}", f"{value:.4g}") for key, value in sorted(manifest["resources"].items())]
        return rows
