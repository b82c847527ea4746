"""``trellis doctor``: can a run be made here, and if not, what is to be done?"""

from __future__ import annotations

import argparse
import subprocess
import sys

from harness.doctor.findings import Finding, can_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--fix", action="store_true", help="mend what can be mended safely, then probe again")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Probe, mend when asked, and report.

    Returns:
        0 when a run can be made, 1 otherwise.
    """
    findings = _examine()
    if arguments.fix and mend(findings):
        findings = _examine()
    print(as_json(findings) if arguments.json else as_text(findings))
    return 0 if can_run(findings) else 1


def mend(findings: list[Finding]) -> bool:
    """Run each finding's safe command once, in order; their output goes to stderr.

    Returns:
        Whether there was anything to run.
    """
    commands = list(dict.fromkeys(finding.fix for finding in findings if finding.level != "ok" and finding.fix))
    for command in commands:
        print(f"mending: {' '.join(command)}", file=sys.stderr, flush=True)
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
        if status != 0:
            print(f"mending failed with exit status {status}", file=sys.stderr)
    return bool(commands)


def as_text(findings: list[Finding]) -> str:
    """A line a finding, a further line where something can be mended, and a closing line."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:7}  {finding.subject:{width}}  {finding.found}: {finding.meaning}")
        if finding.mend:
            lines.append(f"{'':7}  {'':{width}}  mend: {finding.mend}")
    problems = sum(finding.level == "problem" for finding in findings)
    lines.append("a run can be made" if problems == 0 else f"no run can be made: problems found: {problems}")
    return "\n".join(lines)


def as_json(findings: list[Finding]) -> str:
    """The findings for machines: ``{"can_run": ..., "findings": [...]}``."""
    import msgspec

    document = {"can_run": can_run(findings), "findings": findings}
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _examine() -> list[Finding]:
    from harness.doctor.facts import gather
    from harness.doctor.probes import examine

    return examine(gather())
