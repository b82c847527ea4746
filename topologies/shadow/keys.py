"""The keys of ``shadow.yaml``: which are used, which have no effect here, and which are refused.

A key of a newer Shadow than this table is refused, too, so that no part of an experiment is left out in silence.
docs/shadow.md lists these tables; a test compares them.

Source: Shadow 3, docs/shadow_config_spec.md.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from topologies.shadow.quantities import parse_time_ns

USED: Final = "used"
"""The value of a key that a reader of its own reads."""


class Ignored(NamedTuple):
    """A key that changes nothing here; ``why`` says the reason in the remark on it."""

    why: str


class Refused(NamedTuple):
    """A key with values that Trellis cannot honour; ``is_usual`` says which values change nothing."""

    why: str
    is_usual: Callable[[object], bool]


Rule = str | Ignored | Refused

_ENGINE: Final = Ignored("it is about Shadow's own execution")
_CLOCK: Final = Ignored("programs run in real time, on a real kernel")
_KERNEL: Final = Ignored("sockets are the kernel's, with its own buffers")
_LOG: Final = Ignored("it is about Shadow's own log")
_PCAP: Final = Ignored("Trellis captures the packets of all hosts (capture.enabled, capture.snaplen_bytes)")


def _is_none(value: object) -> bool:
    return value is None


GENERAL: Final[dict[str, Rule]] = {
    "stop_time": USED,
    "seed": USED,
    "bootstrap_end_time": Refused(
        "rates and losses hold from the start, so there is no time without them",
        lambda value: value is None or parse_time_ns(value) == 0,
    ),
    "data_directory": Ignored("the results are in the run directory (--out)"),
    "heartbeat_interval": _LOG,
    "log_level": _LOG,
    "model_unblocked_syscall_latency": _CLOCK,
    "parallelism": _ENGINE,
    "progress": _LOG,
    "template_directory": Refused(
        "the folders of hosts are empty at the start; name files by absolute paths", _is_none
    ),
}

NETWORK: Final[dict[str, Rule]] = {"graph": USED, "use_shortest_path": USED}

GRAPH: Final[dict[str, Rule]] = {"type": USED, "file": USED, "inline": USED}

GRAPH_FILE: Final[dict[str, Rule]] = {"path": USED, "compression": USED}

EXPERIMENTAL: Final[dict[str, Rule]] = {
    "interface_qdisc": Refused("the queue of a host is a FIFO queue", lambda value: value in (None, "fifo")),
    "max_unapplied_cpu_latency": _CLOCK,
    "native_preemption_enabled": _CLOCK,
    "native_preemption_native_interval": _CLOCK,
    "native_preemption_sim_interval": _CLOCK,
    "report_errors_to_stderr": _LOG,
    "runahead": _ENGINE,
    "scheduler": _ENGINE,
    "socket_recv_autotune": _KERNEL,
    "socket_recv_buffer": _KERNEL,
    "socket_send_autotune": _KERNEL,
    "socket_send_buffer": _KERNEL,
    "strace_logging_mode": _LOG,
    "unblocked_syscall_latency": _CLOCK,
    "unblocked_vdso_latency": _CLOCK,
    "use_cpu_pinning": _ENGINE,
    "use_dynamic_runahead": _ENGINE,
    "use_memory_manager": _ENGINE,
    "use_new_tcp": _KERNEL,
    "use_object_counters": _ENGINE,
    "use_preload_libc": _ENGINE,
    "use_preload_openssl_crypto": _ENGINE,
    "use_preload_openssl_rng": _ENGINE,
    "use_sched_fifo": _ENGINE,
    "use_syscall_counters": _ENGINE,
    "use_worker_spinning": _ENGINE,
}

HOST_OPTIONS: Final[dict[str, Rule]] = {"log_level": _LOG, "pcap_capture_size": _PCAP, "pcap_enabled": _PCAP}

TOP: Final[dict[str, Rule]] = {
    "general": USED,
    "network": USED,
    "experimental": USED,
    "host_option_defaults": USED,
    "hosts": USED,
}

HOST: Final[dict[str, Rule]] = {
    "network_node_id": USED,
    "processes": USED,
    "bandwidth_down": USED,
    "bandwidth_up": USED,
    "host_options": USED,
    "ip_addr": Refused("hosts get the addresses 10.0.0.1, 10.0.0.2, ... in their order", _is_none),
}

PROCESS: Final[dict[str, Rule]] = {
    "path": USED,
    "args": USED,
    "environment": USED,
    "start_time": USED,
    "shutdown_time": USED,
    "shutdown_signal": USED,
    "expected_final_state": USED,
}

SECTIONS: Final[dict[str, dict[str, Rule]]] = {
    "": TOP,
    "general": GENERAL,
    "network": NETWORK,
    "network.graph": GRAPH,
    "network.graph.file": GRAPH_FILE,
    "experimental": EXPERIMENTAL,
    "host_option_defaults": HOST_OPTIONS,
    "hosts.NAME": HOST,
    "hosts.NAME.host_options": HOST_OPTIONS,
    "hosts.NAME.processes": PROCESS,
}
"""All keys by their sections, for docs/shadow.md."""

EARLIER: Final = {
    "quantity": "Shadow 3 has no such key; write the host or the process once for each, such as with a YAML alias",
    "options": "Shadow 3 calls it host_options",
    "host_defaults": "Shadow 3 calls it host_option_defaults",
    "stop_time": "Shadow 3 calls it shutdown_time",
    "pcap_directory": "Shadow 3 calls it pcap_enabled",
}
"""Keys of earlier versions of Shadow, and what to write instead."""
