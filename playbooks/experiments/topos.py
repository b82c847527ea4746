"""Five Mininet topologies, which run under Mininet itself and as underlays of Trellis.

::

    mn --custom playbooks/experiments/topos.py --topo dumbbell,3 --link tc
    ./trellis plan playbooks/experiments/mininet.toml --set 'underlay.topo="topos.py:dumbbell,3"'
"""

from mininet.link import TCLink
from mininet.topo import Topo


class SingleSwitch(Topo):
    """Hosts at one switch."""

    def build(self, n=4, delay="5ms"):
        switch = self.addSwitch("s1")
        for number in range(1, n + 1):
            self.addLink(self.addHost(f"h{number}"), switch, cls=TCLink, delay=delay)


class Linear(Topo):
    """A chain of switches with one host each."""

    def build(self, k=4, delay="3ms"):
        before = None
        for number in range(1, k + 1):
            switch = self.addSwitch(f"s{number}")
            self.addLink(self.addHost(f"h{number}"), switch)
            if before is not None:
                self.addLink(before, switch, cls=TCLink, delay=delay)
            before = switch


class Tree(Topo):
    """A tree of switches whose leaves are hosts. Links near the root are slower and longer."""

    def build(self, depth=2, fanout=3):
        self.fanout, self.hosts_made, self.switches_made = fanout, 0, 0
        self.grow(depth)

    def grow(self, depth):
        if depth == 0:
            self.hosts_made += 1
            return self.addHost(f"h{self.hosts_made}")
        self.switches_made += 1
        switch = self.addSwitch(f"s{self.switches_made}")
        for _ in range(self.fanout):
            self.addLink(switch, self.grow(depth - 1), cls=TCLink, delay=f"{2 * depth}ms", bw=100 / depth)
        return switch


class Torus(Topo):
    """A grid of switches whose edges are joined, with one host each. Mininet needs spanning trees for it."""

    def build(self, x=3, y=3, delay="2ms"):
        for column in range(x):
            for row in range(y):
                switch = self.addSwitch(f"s{column}x{row}", dpid=f"{column * 256 + row + 1:x}", stp=True)
                self.addLink(self.addHost(f"h{column}x{row}"), switch)
        for column in range(x):
            for row in range(y):
                for other in (f"s{(column + 1) % x}x{row}", f"s{column}x{(row + 1) % y}"):
                    self.addLink(f"s{column}x{row}", other, cls=TCLink, delay=delay)


class Dumbbell(Topo):
    """Hosts at two switches; the link between these has a rate, a queue, jitter, and another delay each way."""

    def build(self, n=3, bw=10):
        left, right = self.addSwitch("s1"), self.addSwitch("s2")
        ways = {"params1": {"delay": "20ms"}, "params2": {"delay": "30ms"}}
        self.addLink(left, right, cls=TCLink, bw=bw, max_queue_size=50, jitter="1ms", **ways)
        for number in range(1, n + 1):
            self.addLink(self.addHost(f"l{number}"), left, cls=TCLink, delay="1ms")
            self.addLink(self.addHost(f"r{number}"), right, cls=TCLink, delay="1ms", loss=0.1)


topos = {"single": SingleSwitch, "line": Linear, "tree": Tree, "torus": Torus, "dumbbell": Dumbbell}
