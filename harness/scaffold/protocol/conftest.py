"""Names the protocol to Trellis, as ``--plugin`` does for a command."""

import os
from pathlib import Path

os.environ["TRELLIS_PLUGINS"] = str(Path(__file__).resolve().parent / "template_protocol")
