"""The checks: pure functions from facts to findings."""

from harness.doctor.facts import NEEDED, OPTIONAL, Facts
from harness.doctor.findings import Finding, Level
from harness.doctor.programs import SETUP, Program, read_programs
from harness.planes.description import Device

MINIMUM_JAVA = 17
MEMORY_NEEDED_MIB, MEMORY_WANTED_MIB = 1024, 4096
DISK_NEEDED_MIB, DISK_WANTED_MIB = 1024, 5120
OPEN_FILES_NEEDED, OPEN_FILES_WANTED = 1024, 16_384
PROCESSES_NEEDED, PROCESSES_WANTED = 512, 4096
NEIGHBOURS_WANTED = 4096
TIMER_P99_WANTED_MS = 1.0
STEADY_CLOCKSOURCES = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")


def examine(facts: Facts) -> list[Finding]:
    """Return every finding, the most important for a run first."""
    return [
        *probe_namespaces(facts),
        *probe_devices(facts),
        *probe_programs(facts, read_programs()),
        probe_java(facts),
        *probe_collisions(facts),
        *probe_limits(facts),
        probe_realtime(facts),
        *probe_pressure(facts),
        *probe_clocks(facts),
        *probe_space(facts),
    ]


def probe_namespaces(facts: Facts) -> list[Finding]:
    """Check the namespaces of the sandbox: network, mount, PID and IPC."""
    who = "root" if facts.is_root else "this user"
    own = facts.namespaces
    user = facts.user_namespaces
    return [
        Finding("namespaces", "ok", f"{who} can make them", "runs are isolated and leave nothing behind")
        if own.worked
        else Finding(
            "namespaces",
            "problem",
            f"{who} cannot make them: {own.error}",
            "the emulated testbed cannot start, and its devices were not tried",
            "give the container CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged has both)"
            if facts.is_root
            else "run as root, or allow user namespaces (next finding)",
        ),
        Finding("user namespaces", "ok", "an ordinary user can make them", "runs also work without root")
        if user.worked
        else Finding(
            "user namespaces",
            "note",
            f"an ordinary user cannot make them: {user.error}",
            "emulated runs need root",
            "sysctl -w kernel.unprivileged_userns_clone=1 (Debian) or "
            "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu); both weaken the machine's isolation",
        ),
    ]


def probe_devices(facts: Facts) -> list[Finding]:
    """Check the network devices that testbeds need, each by making one in namespaces of its own.

    Without namespaces all attempts fail, whatever devices the kernel has, so there is no finding.
    """
    if not facts.namespaces.worked:
        return []
    findings = [_device(facts, device) for device in NEEDED.values()]
    return findings + [_optional(facts, plane, device) for plane, device in OPTIONAL.values()]


def _optional(facts: Facts, plane: str, device: Device) -> Finding:
    tried = facts.devices[device.name]
    if tried.worked:
        return Finding(device.name, "ok", "the kernel has it", device.purpose)
    meaning = f'{device.purpose}; needed for plane = "{plane}" only'
    return Finding(device.name, "note", f"absent: {tried.error}", meaning, device.mend)


def _device(facts: Facts, device: Device) -> Finding:
    tried = facts.devices[device.name]
    if tried.worked:
        return Finding(device.name, "ok", "a device was made and removed", device.purpose)
    fix = ("modprobe", device.name) if facts.is_root else ()
    return Finding(device.name, "problem", f"no device can be made: {tried.error}", device.purpose, device.mend, fix)


def probe_programs(facts: Facts, programs: list[Program]) -> list[Finding]:
    """Check the programs that Trellis starts, except Java, whose version matters, too."""
    return [_program(facts, program) for program in programs if program.name != "java"]


def _program(facts: Facts, program: Program) -> Finding:
    path = facts.programs.get(program.name)
    if path is not None:
        return Finding(program.name, "ok", path, program.purpose)
    every_run = "run" in program.groups
    group = "run" if every_run else program.groups[0]
    needed_by = "" if every_run else f" (only for: trellis {', '.join(program.groups)})"
    return Finding(
        program.name,
        "problem" if every_run else "note",
        "not installed",
        program.purpose + needed_by,
        _installation(group),
        _installer(group, facts),
    )


def probe_java(facts: Facts) -> Finding:
    """Check the version of Java, which Spark needs; without any, one process analyses a run."""
    purpose = "Spark, which computes the tables of runs and distributes sweeps"
    if facts.java_major is not None and facts.java_major >= MINIMUM_JAVA:
        return Finding("java", "ok", f"version {facts.java_major}", purpose)
    mend, fix = _installation("run"), _installer("run", facts)
    if facts.java_major is None:
        found = "not installed, so one process computes the tables, and sweeps need --master here"
        return Finding("java", "note", found, purpose, mend, fix)
    found = f"version {facts.java_major}, needed {MINIMUM_JAVA} or later"
    return Finding("java", "problem", found, purpose, mend, fix)


def _installation(group: str) -> str:
    return f"sudo sh {SETUP / 'system.sh'} {group}"


def _installer(group: str, facts: Facts) -> tuple[str, ...]:
    return ("sh", str(SETUP / "system.sh"), group) if facts.is_root else ()


def probe_collisions(facts: Facts) -> list[Finding]:
    """Check that no other distribution owns an import name of Trellis."""
    mend = "use a separate environment (./trellis makes one), or uninstall the other distribution"
    meaning = "Trellis would run the other distribution's code, or hide it"
    if facts.collisions:
        return [Finding("import names", "problem", collision, meaning, mend) for collision in facts.collisions]
    return [Finding("import names", "ok", "owned by no other distribution", "Trellis imports its own code")]


def probe_limits(facts: Facts) -> list[Finding]:
    """Check the limits on a run's size."""
    findings = [
        Finding(
            "open files",
            _level(facts.open_files, OPEN_FILES_NEEDED, OPEN_FILES_WANTED),
            f"at most {facts.open_files} per process",
            "the data plane opens about three per host, a peer one per link",
            "" if facts.open_files >= OPEN_FILES_WANTED else f"ulimit -Hn {OPEN_FILES_WANTED} as root, or limits.conf",
        ),
        Finding(
            "processes",
            _level(facts.processes, PROCESSES_NEEDED, PROCESSES_WANTED),
            f"at most {facts.processes}",
            "a run has about two per host",
            "" if facts.processes >= PROCESSES_WANTED else "raise ulimit -u, kernel.pid_max or the cgroup's pids.max",
        ),
    ]
    if facts.neighbours is not None:
        findings.append(_neighbours(facts, facts.neighbours))
    return findings


def _neighbours(facts: Facts, limit: int) -> Finding:
    found, meaning = f"at most {limit} in the whole kernel", "the control network uses about two per host"
    if limit >= NEIGHBOURS_WANTED:
        return Finding("neighbour table", "ok", found, meaning)
    command = ("sysctl", "-w", f"net.ipv4.neigh.default.gc_thresh3={NEIGHBOURS_WANTED}")
    mend = " ".join(command) + " (until the next boot; permanently: /etc/sysctl.d)"
    return Finding("neighbour table", "note", found, meaning, mend, command if facts.is_root else ())


def probe_realtime(facts: Facts) -> Finding:
    """Check whether the data plane can have real-time priority, with which it is late less often."""
    if facts.realtime.worked:
        return Finding("real-time priority", "ok", "allowed", "the data plane runs first when processes compete")
    return Finding(
        "real-time priority",
        "note",
        f"refused: {facts.realtime.error}",
        "the data plane competes with the peers; on a busy machine more runs are suspect",
        "run as root, or allow it: 'USER - rtprio 50' in /etc/security/limits.conf",
    )


def probe_pressure(facts: Facts) -> list[Finding]:
    """Check the kernel's measurement of CPU pressure, and the processors."""
    if facts.pressure_available:
        psi = Finding("pressure (PSI)", "ok", "/proc/pressure can be read", "an overload of the machine is detected")
    else:
        meaning = "CPU pressure is missing from the fidelity record; lateness still shows an overload"
        mend = "boot with psi=1, or use a kernel with CONFIG_PSI"
        psi = Finding("pressure (PSI)", "note", "/proc/pressure is absent", meaning, mend)
    return [psi, probe_processors(facts)]


def probe_processors(facts: Facts) -> Finding:
    """Check the processors. Processes that use up a quota are stopped for the rest of its period."""
    meaning = "the data plane needs one core, and the peers share the rest"
    found = f"{facts.cpus:g} usable, cgroup v{facts.cgroup_version}"
    if facts.cpus < facts.visible_cpus:
        return Finding(
            "processors",
            "note",
            f"{facts.cpus:g} of {facts.visible_cpus} by a quota, cgroup v{facts.cgroup_version}",
            f"{meaning}; a run that uses up the quota is throttled and is suspect",
            "give the container whole processors (a cpuset) instead of a quota",
        )
    if facts.cpus < 2:
        return Finding("processors", "note", found, meaning, "give the machine a second core")
    return Finding("processors", "ok", found, meaning)


def probe_clocks(facts: Facts) -> list[Finding]:
    """Check CLOCK_MONOTONIC, from which every timestamp is read, and the timers that make every delay."""
    steady = facts.clocksource in STEADY_CLOCKSOURCES and facts.monotonic_resolution_ns <= 1000
    prompt = facts.timer.p99_ms <= TIMER_P99_WANTED_MS
    return [
        Finding(
            "clock",
            "ok" if steady else "note",
            f"{facts.clocksource}, resolution {facts.monotonic_resolution_ns} ns",
            "all timestamps come from it" if steady else "it is slow or coarse; short delays are less exact",
            "" if steady else "boot with clocksource=tsc if the processor's TSC is invariant",
        ),
        Finding(
            "timers",
            "ok" if prompt else "note",
            f"late by {facts.timer.p50_ms:.2f} ms (median), {facts.timer.p99_ms:.2f} ms (p99)",
            "on the idle machine delayed packets are late by at least this much",
            "" if prompt else "stop other work on this machine; give a virtual machine dedicated cores",
        ),
    ]


def probe_space(facts: Facts) -> list[Finding]:
    """Check memory for the peers and Spark, and disk space for captures and tables."""
    memory, disk = facts.memory_available_mib, facts.disk_free_mib
    return [
        Finding(
            "memory",
            _level(memory, MEMORY_NEEDED_MIB, MEMORY_WANTED_MIB),
            f"{memory:.0f} MiB available",
            "about 5 MiB per peer, and 1 to 2 GiB for the analysis afterwards",
            "" if memory >= MEMORY_WANTED_MIB else "end other programs, or run fewer hosts",
        ),
        Finding(
            "disk",
            _level(disk, DISK_NEEDED_MIB, DISK_WANTED_MIB),
            f"{disk:.0f} MiB free",
            "a large run writes hundreds of MiB of captures and traces",
            "" if disk >= DISK_WANTED_MIB else "trellis clean --runs, or set --out to a folder on another disk",
        ),
    ]


def _level(value: float, needed: float, wanted: float) -> Level:
    return "ok" if value >= wanted else "note" if value >= needed else "problem"
