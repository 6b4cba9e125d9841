"""A profile: the time of training by op, forward and backward, and by other parts of a step."""
import time
from collections import Counter

from minigrad.watch.events import Watcher
from minigrad.watch.text import aligned


class Profile(Watcher):
    """Measures the ops and other parts that run inside `with profile:`; each use is a step.

    with profile:
        loss = ...
        loss.backward()
    print(profile.table())

    It has the `seconds` of every (op, "forward" or "backward") and (part, "part"), and the `calls`
    of every op.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.total = 0.0            # seconds of all parts and of everything between them
        self.seconds = Counter()
        self.calls = Counter()

    def __enter__(self) -> "Profile":
        super().__enter__()
        self._entered = time.perf_counter()
        return self

    def __exit__(self, *error) -> None:
        self.total += time.perf_counter() - self._entered
        self.steps += 1
        super().__exit__(*error)

    def _note(self, event):
        self.seconds[event.op, event.direction] += event.seconds
        if event.direction == "forward":
            self.calls[event.op] += 1

    def table(self) -> str:
        """Return a table of the milliseconds of a step, the costliest op first; `all ops` and the
        lines below it add up to a step."""
        steps = max(self.steps, 1)

        def row(name, calls, *seconds):
            shown = ["" if x is None else f"{1e3 * x / steps:,.2f}" if x else "-" for x in seconds]
            return name, calls, *shown, f"{seconds[-1] / max(self.total, 1e-9):.0%}"

        parts = {name: seconds for (name, way), seconds in self.seconds.items() if way == "part"}
        parts |= {"between ops and parts": self.total - sum(self.seconds.values()),
                  "a step": self.total}
        ops = {op: [self.seconds[op, way] for way in ("forward", "backward")]
               for op, way in self.seconds if way != "part"}
        totals = [sum(column) for column in zip((0, 0), *ops.values())]
        return "\n".join(aligned([
            (f"ms a step, of {self.steps}", "calls", "forward", "backward", "both", "share"),
            *(row(op, f"{self.calls[op] / steps:g}" if self.calls[op] else "-", *both, sum(both))
              for op, both in sorted(ops.items(), key=lambda item: -sum(item[1]))),
            row("all ops", "", *totals, sum(totals)),
            *(row(name, "", None, None, seconds) for name, seconds in parts.items())], "<>>>>>"))
