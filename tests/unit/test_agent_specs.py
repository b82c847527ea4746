"""What each agent is told: above all the number of the run, which strangers must not be able to guess."""

import random
from pathlib import Path

from harness.deployment.agents import Site, build_agent_specs
from harness.experiment.loader import load_experiment

EXPERIMENT = load_experiment(Path(__file__).parents[2] / "playbooks/experiments/quickstart.toml")
SITES = [Site(node, f"m{node % 2}", ("192.0.2.1", 9000 + node), None) for node in range(4)]


def run_numbers() -> set[int]:
    random.seed(1)  # the number depends on no generator that an experiment's seed could set
    return {spec.run for spec in build_agent_specs(EXPERIMENT, SITES).values()}


def test_the_agents_of_a_run_share_a_number_that_no_other_run_has() -> None:
    runs = [run_numbers() for _ in range(20)]
    assert {len(numbers) for numbers in runs} == {1}
    assert len(set().union(*runs)) == 20


def test_a_run_number_has_53_bits_that_differ_from_run_to_run() -> None:
    """JSON readers keep 53 bits exactly. All but the highest one are drawn: none is the same in 100 runs."""
    numbers = [run_numbers().pop() for _ in range(100)]
    assert {number.bit_length() for number in numbers} == {53}
    always_set = always_clear = (1 << 52) - 1
    for number in numbers:
        always_set &= number
        always_clear &= ~number
    assert (always_set, always_clear) == (0, 0)


def test_each_agent_starts_the_peers_of_its_machine_and_knows_every_address() -> None:
    specs = build_agent_specs(EXPERIMENT, SITES)
    assert {name: [place.node for place in spec.peers] for name, spec in specs.items()} == {"m0": [0, 2], "m1": [1, 3]}
    assert {spec.addresses for spec in specs.values()} == {tuple(site.listen for site in SITES)}
