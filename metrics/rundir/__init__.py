"""The run directory, the only interface between running and analysing (docs/results.md): harness writes, metrics reads.

``files`` names its files, ``plain`` has the kinds of files that are not allowed, ``reading`` has the rules for missing
and damaged files, and ``writing`` opens them for writing. ``documents`` and ``lines`` are their types with their
``bounds``, and the schema version, ``phases`` the phases of a run and their instants, ``parquet`` the version in
Parquet files. Only the last needs Arrow.
"""

from metrics.rundir.documents import FAILED as FAILED
from metrics.rundir.documents import INVALID as INVALID
from metrics.rundir.documents import JUDGED as JUDGED
from metrics.rundir.documents import NOT_APPLICABLE as NOT_APPLICABLE
from metrics.rundir.documents import NOT_JUDGED as NOT_JUDGED
from metrics.rundir.documents import PASSED as PASSED
from metrics.rundir.documents import SCHEMA_VERSION as SCHEMA_VERSION
from metrics.rundir.documents import SUSPECT as SUSPECT
from metrics.rundir.documents import VALID as VALID
from metrics.rundir.documents import AppliedChange as AppliedChange
from metrics.rundir.documents import Attempt as Attempt
from metrics.rundir.documents import BegunPhase as BegunPhase
from metrics.rundir.documents import Check as Check
from metrics.rundir.documents import ClockOffset as ClockOffset
from metrics.rundir.documents import FinalState as FinalState
from metrics.rundir.documents import Manifest as Manifest
from metrics.rundir.documents import NodeOutline as NodeOutline
from metrics.rundir.documents import Placement as Placement
from metrics.rundir.documents import Pointer as Pointer
from metrics.rundir.documents import Record as Record
from metrics.rundir.documents import Scope as Scope
from metrics.rundir.documents import Stall as Stall
from metrics.rundir.documents import Summary as Summary
from metrics.rundir.phases import Phase as Phase
from metrics.rundir.phases import Timeline as Timeline
from metrics.rundir.reading import DamagedError as DamagedError
from metrics.rundir.reading import RunDirError as RunDirError
from metrics.rundir.reading import read_document as read_document
from metrics.rundir.reading import read_lines as read_lines
from metrics.rundir.reading import require_plain as require_plain
from metrics.rundir.reading import require_run_dir as require_run_dir
from metrics.rundir.run import RunDir as RunDir
from metrics.rundir.run import read_clocks as read_clocks
from metrics.rundir.run import read_pointer as read_pointer
from metrics.rundir.writing import open_log as open_log
from metrics.rundir.writing import write_document as write_document
from metrics.rundir.writing import write_file as write_file
