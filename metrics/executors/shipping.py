"""Sends our code to Spark's executors: the driver packs it, and they import it from a zip."""

import hashlib
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from peer.plugins import shipped_files

_ROOMS: Final = ("metrics", "peer", "topologies")


def ship_code(spark: SparkSession, rooms: Sequence[str] = _ROOMS) -> None:
    """Make our packages available to a session's executors, which need NumPy, pyarrow and msgspec of their own."""
    if not isinstance(spark, SparkSession):  # Spark Connect: the server keeps a copy for its executors and itself
        with TemporaryDirectory(prefix="trellis-") as temporary:
            spark.addArtifacts(str(pack_code(Path(temporary), rooms)), pyfile=True)
        return
    folder = Path(SparkFiles.getRootDirectory()) / "shipped"  # removed with the session; executors fetch it late
    folder.mkdir(exist_ok=True)
    spark.sparkContext.addPyFile(str(pack_code(folder, rooms)))


def pack_code(folder: Path, rooms: Sequence[str] = _ROOMS) -> Path:
    """Make a zip in ``folder`` of the packages that executors import, with their data, for ``SparkContext.addPyFile``.

    The plugins that these packages read are in it, too.

    Its name comes from its content: Spark refuses a second file of a name, and a second registration has no effect.
    """
    root = Path(__file__).parents[2]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for room in rooms:
            for path in sorted((root / room).rglob("*")):
                if path.is_file() and path.parent.name != "__pycache__":
                    archive.writestr(zipfile.ZipInfo(str(path.relative_to(root))), path.read_bytes())
        for name, plugin in sorted(shipped_files(rooms).items()):
            archive.writestr(zipfile.ZipInfo(name), plugin)
    target = folder / f"trellis_{hashlib.sha256(content.getvalue()).hexdigest()[:16]}.zip"
    target.write_bytes(content.getvalue())
    return target
