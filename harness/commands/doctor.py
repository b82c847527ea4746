"""``trellis doctor``: check this machine and say how to fix each finding."""

import argparse
import subprocess
import sys

from harness.doctor.findings import Finding, can_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fix", action="store_true", help="run the safe fixes, then check again")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check this machine, run the fixes if asked, and print the findings.

    Returns:
        0 if a run can be made, otherwise 1.
    """
    findings = _examine()
    if arguments.fix and mend(findings):
        findings = _examine()
    print(as_json(findings) if arguments.json else as_text(findings))
    return 0 if can_run(findings) else 1


def mend(findings: list[Finding]) -> bool:
    """Run the safe command of each finding once, in order. Their output goes to stderr.

    Returns:
        Whether there was a command to run.
    """
    commands = list(dict.fromkeys(finding.fix for finding in findings if finding.level != "ok" and finding.fix))
    for command in commands:
        print(f"fixing: {' '.join(command)}", file=sys.stderr, flush=True)
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
        if status != 0:
            print(f"the fix failed with exit status {status}", file=sys.stderr)
    return bool(commands)


def as_text(findings: list[Finding]) -> str:
    """Return one line per finding, a second line where there is a fix, and a last line with the result."""
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:7}  {finding.subject:{width}}  {finding.found}: {finding.meaning}")
        if finding.mend:
            lines.append(f"{'':7}  {'':{width}}  fix: {finding.mend}")
    problems = sum(finding.level == "problem" for finding in findings)
    lines.append("a run can be made" if problems == 0 else f"no run can be made; problems: {problems}")
    return "\n".join(lines)


def as_json(findings: list[Finding]) -> str:
    """Return the findings as JSON: ``{"can_run": ..., "findings": [...]}``."""
    import msgspec

    document = {"can_run": can_run(findings), "findings": findings}
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _examine() -> list[Finding]:
    from harness.doctor.facts import gather
    from harness.doctor.probes import examine

    return examine(gather())
