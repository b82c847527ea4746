"""``trellis inspect``: print the overlay frames of a capture, one line per frame."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.errors import ExperimentError
from metrics.rundir import RunDir
from metrics.rundir.files import CAPTURE_FOLDER, MANIFEST_FILE, PLAN_FILE
from metrics.storage import Place, StoreError, place

if TYPE_CHECKING:
    from harness.inspection.dissector import TrellisFrame
    from harness.inspection.segments import Segment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capture", type=place, help="a pcap or pcapng file, also one in gzip, or its URI (s3://...)")
    parser.add_argument("--tap", choices=("tx", "rx", "both"), default="tx",
                        help="show frames where they are sent (default), received, or both")  # fmt: skip
    parser.add_argument("--limit", type=int, default=0, help="stop after this many frames (default: all)")
    parser.add_argument("--port", type=int, help="the peers' TCP port (default: Trellis's own)")


def run(arguments: argparse.Namespace) -> int:
    """Print the frames, then the counts of what was read and what could not be decoded.

    Raises:
        ExperimentError: the file is not a capture.
        RunDirError: it is in the directory of a run of a version that cannot be read.
    """
    from metrics.pcap.files import CaptureError

    _require_version(arguments.capture)
    trouble: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    try:
        for line, kind in _lines(arguments, trouble):
            print(line)
            kinds[kind] += 1
            if kinds.total() == arguments.limit:
                break
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards what is still buffered
        return 0
    except CaptureError as error:
        raise ExperimentError(str(arguments.capture), f"not a capture: {error.problem}") from None
    except StoreError:
        raise
    except OSError as error:
        raise ExperimentError(str(arguments.capture), error.strerror or str(error)) from None
    print(_summary(kinds, trouble), file=sys.stderr)
    return 0


def _require_version(capture: Place) -> None:
    """Refuse a run's capture if the run has frames that only another version of Trellis knows."""
    folder = capture.absolute().parent
    if folder.name == CAPTURE_FOLDER and all((folder.parent / name).is_file() for name in (PLAN_FILE, MANIFEST_FILE)):
        _ = RunDir(folder.parent).manifest


def _lines(arguments: argparse.Namespace, trouble: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield (line, kind) of every frame."""
    from harness.experiment.inventory import PEER_PORT
    from harness.inspection.dissector import TrellisFrame
    from harness.inspection.frame_walk import FrameWalk
    from harness.inspection.segments import read_segments

    walks: dict[tuple[str, str, str], FrameWalk] = {}
    start_ns: int | None = None
    for segment in read_segments(arguments.capture, arguments.port or PEER_PORT, trouble):
        start_ns = segment.ts_ns if start_ns is None else start_ns
        if arguments.tap != "both" and segment.tap not in ("", arguments.tap):
            trouble["at_other_tap"] += 1
            continue
        walk = walks.setdefault((segment.source, segment.destination, segment.tap), FrameWalk(trouble))
        for content, length in walk.segment(segment.seq, segment.kept, segment.length):
            frame = TrellisFrame(content[:length])
            if len(content) < length:
                trouble["cut"] += 1
            yield _line(segment, (segment.ts_ns - start_ns) / 1e9, frame, len(content) < length), _kind(frame)


def _line(segment: Segment, at_s: float, frame: TrellisFrame, cut: bool) -> str:
    words = [f"{at_s:13.6f}", f"{segment.tap:2}", f"{segment.source} > {segment.destination}", _kind(frame)]
    if frame.message_id:
        words += [f"id={frame.message_id >> 32}/{frame.message_id & 0xFFFFFFFF}"]
        words += [f"topics={','.join(map(str, frame.topics))}", f"hops={frame.hops}", f"ttl={frame.ttl}"]
    return " ".join([*words, f"length={frame.length}", "(cut)" if cut else _body(frame)])


def _kind(frame: TrellisFrame) -> str:
    return str(frame.sprintf("%kind%"))


def _body(frame: TrellisFrame) -> str:
    fields = frame.fields_of_body()
    if fields is None:
        return "(body not decoded)"
    return " ".join(f"<{len(value)} bytes>" if isinstance(value, bytes) else repr(value) for value in fields)


def _summary(kinds: Counter[str], trouble: Counter[str]) -> str:
    seen = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "no overlay frame"
    if trouble["cut"] or trouble["hidden"]:
        seen += "; the capture cut the payload: bodies and headers after the cut are missing"
    missed = ", ".join(f"{count} {name}" for name, count in sorted(trouble.items()))
    return f"{kinds.total()} frames: {seen}" + (f"\nnot shown as frames: {missed}" if missed else "")
