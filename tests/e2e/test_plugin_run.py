"""A simulated run with plugins of several kinds: the examples of docs/plugins.md."""

import re
from pathlib import Path

import pytest

from tests.e2e.run_experiment import IN_PROCESS, Finished, finish, start

PAGE = Path(__file__).parents[2] / "docs/plugins.md"
EXPERIMENT = """
name = "sea"
plugins = ["sea", "deaf.py", "ring.py"]
protocol = "wave"
testbed = "simulated"
underlay.kind = "ring"
underlay.hosts = 6
random.degree = 2
adversary.kind = "deaf"
adversary.nodes = [5]
interests.ratio = 0.7
workload.duration_s = 5
workload.payload_bytes = 1000
"""


@pytest.mark.slow
def test_a_report_has_the_measures_and_figures_of_plugins(tmp_path: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        target = tmp_path / code.splitlines()[0].removeprefix("# ")
        target.parent.mkdir(exist_ok=True)
        target.write_text(code)
    (tmp_path / "sea.toml").write_text(EXPERIMENT)
    words = (*IN_PROCESS, "--out", tmp_path / "run", "--json")
    run = Finished(tmp_path / "run", finish(start("run", tmp_path / "sea.toml", *words)))
    assert [plugin["name"] for plugin in run.manifest["plugins"]] == ["sea", "deaf", "ring"]
    numbers = run.summary["headline"]
    assert (
        numbers["propagation_delay_ms_p50"]
        <= numbers["propagation_delay_ms_p75"]
        <= numbers["propagation_delay_ms_p90"]
    )
    assert numbers["adversaries"] == 1
    page = (run.run_dir / "report/index.html").read_text(encoding="utf-8")
    chapter = page.split('<h2 id="sea">Sea</h2>')[1]
    assert "delay of deliveries, 75th percentile" in page
    assert 'id="sea-hops"' in chapter
    assert '"withhold"' in (run.run_dir / "trace/5.jsonl").read_text(encoding="utf-8")
