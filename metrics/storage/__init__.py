"""Where runs are: folders of this machine's file system, or object stores.

A ``Place`` is either a ``pathlib.Path`` or a ``StorePath``, which has the same methods, so that the rest of the
analysis does not distinguish the two. ``place`` makes a place from what a user names. Files of this machine are read
and written as if there were no stores: this package passes them on to pathlib, NumPy and pyarrow, which it imports only
where they are used.

The differences are:

* An object appears in a store whole or not at all, but nothing can be renamed. So ``attempts.Attempt`` writes a file of
  this machine, and uploads it when it is whole.
* Bytes of a store cannot be mapped. ``copies.map_bytes`` copies an object to a temporary file in pieces, and maps that.
* A store has no empty folders. A folder is there if an object is in it.
"""

from metrics.storage.names import StoreError
from metrics.storage.paths import Place, StorePath, local_path, place

__all__ = ["Place", "StoreError", "StorePath", "local_path", "place"]
