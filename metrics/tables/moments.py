"""Mean and variance of values in several tasks: each task has moments of its values, and the moments are added."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Moments:
    """The number of values, their mean, and the sum of the squares of their differences from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Self:
        if not len(values):
            return cls()
        mean = float(values.mean())
        return cls(len(values), mean, float(np.square(values - mean).sum()))

    def __add__(self, other: "Moments") -> "Moments":
        """Return the moments of both together (Chan, Golub, LeVeque 1979)."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * self.count * other.count / count
        return Moments(count, self.mean + apart * other.count / count, squares)

    @property
    def std(self) -> float | None:
        """The standard deviation of the sample; None with fewer than two values."""
        return float(np.sqrt(self.squares / (self.count - 1))) if self.count > 1 else None
