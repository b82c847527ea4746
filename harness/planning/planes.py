"""Which data plane carries the packets of a run, and what keeps a data plane from doing so."""

from collections.abc import Iterator

from msgspec.structs import replace

from harness.doctor.facts import try_device
from harness.errors import ExperimentError
from harness.experiment.abilities import refusals
from harness.experiment.form import Experiment
from harness.planes.description import PlaneAbility
from harness.planes.registry import AUTO, DEFAULT, PLANES
from harness.planning.prediction import exceeded_limit
from harness.testbeds.registry import find_lack, find_testbed
from topologies.bottlenecks import Bottlenecks
from topologies.model import Underlay


def choose_plane(experiment: Experiment, underlay: Underlay, here: bool) -> Experiment:
    """Return the experiment with the data plane that it asks for; ``AUTO`` is replaced by the first one that can.

    Args:
        experiment: its rules are checked.
        underlay: the network that it asks for.
        here: whether the run is made on this machine, whose kernel has to have what the plane needs. Of another
            machine's kernel nothing is known, so that ``AUTO`` chooses the default.

    Raises:
        ExperimentError: the plane that the experiment names cannot carry its packets.
    """
    if experiment.plane == AUTO:
        candidates = (replace(experiment, plane=name) for name in _others(experiment, here))
        able = (candidate for candidate in candidates if next(_lacks(candidate, underlay, here), None) is None)
        return next(able, replace(experiment, plane=DEFAULT))
    for place, problem in _lacks(experiment, underlay, here):
        raise ExperimentError(place, problem)
    return experiment


def _others(experiment: Experiment, here: bool) -> Iterator[str]:
    """Yield the planes besides the default among which ``AUTO`` chooses.

    Without captures nothing shows how late the packets of an opaque plane are.
    """
    if here and find_testbed(experiment.testbed).plane == DEFAULT:
        for name, plane in PLANES.items():
            if name != DEFAULT and (experiment.capture.enabled or "opaque" not in plane.can):
                yield name


def refuse_lacking_kernel(experiment: Experiment) -> None:
    """Refuse a data plane other than the default whose devices this machine's kernel cannot make.

    Raises:
        ExperimentError: with the first device and the kernel's reason.
    """
    for place, problem in _lacking_devices(experiment):
        raise ExperimentError(place, problem)


def _lacks(experiment: Experiment, underlay: Underlay, here: bool) -> Iterator[tuple[str, str]]:
    """Yield the place and the problem of everything that the experiment's testbed and plane cannot do."""
    yield from refusals(experiment)
    testbed = find_testbed(experiment.testbed, experiment.plane)
    if problem := exceeded_limit(testbed, underlay.size):
        yield "$.underlay.hosts", problem
    if "shape" in testbed.can:
        yield from _unshaped(experiment, underlay)
    if here:
        yield from _lacking_devices(experiment)


def _unshaped(experiment: Experiment, underlay: Underlay) -> Iterator[tuple[str, str]]:
    """Yield what the network has, by keys or by its data, and the plane cannot do."""
    asked: tuple[tuple[PlaneAbility, str, bool, str], ...] = (
        ("jitter", "jitter", bool(underlay.jitter_ms.any()), 'set jitter = "none"'),
        ("rate", "rate_mbit", bool(underlay.rate_mbit.any()), "set rate_mbit = 0"),
        ("rate", "link_rate_mbit", bool(Bottlenecks.of(underlay)), "links of this graph have a rate"),
    )
    for ability, key, is_asked, words in asked:
        lack = find_lack(experiment.testbed, ability, experiment.plane)
        if is_asked and lack is not None:
            yield f"$.underlay.{key}", f"{lack}; {words}"


def _lacking_devices(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield the devices of a plane that an experiment has to name and that the kernel cannot make."""
    own, chosen = find_testbed(experiment.testbed), find_testbed(experiment.testbed, experiment.plane)
    for device in chosen.needs:
        if device not in own.needs and not (trial := try_device(device)).worked:
            yield "$.plane", f'"{experiment.plane}" needs {device.name}, which this kernel lacks: {trial.error}'
