"""Where the data files of an experiment are."""

import os
from pathlib import Path

from harness.errors import ExperimentError
from harness.experiment.sections.underlay import UnderlaySpec
from harness.experiment.sections.workload import ChurnSpec, InterestsSpec
from topologies.importers import TopoReference

DATA_VARIABLE = "TRELLIS_DATA"

BELOW_DATA = f"${DATA_VARIABLE}/"
"""How a path below the folder of data begins."""

DATA_SETS = {
    "wondernetwork": "wondernetwork-2020",
    "follower-graph": "snap-ego-twitter/ego-twitter-follows.adj.gz",
    "sessions": "skype-churn/skype-superpeers-sessions.csv.gz",
}
"""Below ``$TRELLIS_DATA``, the data of each kind that has a default."""


def data_path(spec: UnderlaySpec | InterestsSpec | ChurnSpec, folder: Path) -> Path | None:
    """Return the path of a section's data: the experiment's, otherwise below $TRELLIS_DATA; None = not known.

    Args:
        spec: the section.
        folder: the folder of the experiment file; ``spec.path`` is relative to it, unless it begins with
            ``BELOW_DATA``.

    Raises:
        ExperimentError: the path begins with the home of an unknown user.
    """
    named = spec.path
    if isinstance(spec, UnderlaySpec) and spec.topo is not None:
        named = TopoReference.parse(spec.topo).file
    data = os.environ.get(DATA_VARIABLE)
    if named is not None:
        if (below := named.removeprefix(BELOW_DATA)) != named:
            return Path(data) / below if data else None
        try:
            return folder / Path(named).expanduser()
        except RuntimeError as error:  # the home of a user that does not exist
            raise ExperimentError(named, str(error)) from None
    return Path(data) / DATA_SETS[spec.kind] if data and spec.kind in DATA_SETS else None


def require_data(spec: UnderlaySpec | InterestsSpec | ChurnSpec, section: str, folder: Path) -> Path:
    """Return the path of a section's data.

    Args:
        spec: the section.
        section: its name.
        folder: as for ``data_path``.

    Raises:
        ExperimentError: the experiment has no path, and there is no default.
    """
    path = data_path(spec, folder)
    if path is None:
        unset = f"the environment variable {DATA_VARIABLE} is not set"
        if isinstance(spec, UnderlaySpec) and spec.topo is not None:
            raise ExperimentError(f"$.{section}.topo", unset)
        raise ExperimentError(f"$.{section}.path", f"missing, and {unset}")
    return path
