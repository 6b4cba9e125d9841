"""The time of training by op, forward and backward."""
import time
from collections import Counter

from minigrad.watch.events import Watcher
from minigrad.watch.text import aligned


class Profile(Watcher):
    """Measures the ops that run inside `with profile:`; each use is a step.

    with profile:
        loss = ...
        loss.backward()
    print(profile.table())

    For every (op, "forward" or "backward"), it has `seconds` and `calls`.
    """

    def __init__(self) -> None:
        self.steps, self.total = 0, 0.0     # seconds of ops and of everything between them
        self.seconds, self.calls = Counter(), Counter()

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
        self.calls[event.op] += event.direction == "forward"

    def table(self) -> str:
        """Return a table of the milliseconds of a step, the costliest op first."""
        def row(name, calls, *seconds):
            shown = ["" if x is None else f"{1e3 * x / max(self.steps, 1):,.2f}" if x else "-"
                     for x in seconds]
            return name, calls, *shown, f"{seconds[-1] / max(self.total, 1e-9):.0%}"

        ops = {op: [self.seconds[op, way] for way in ("forward", "backward")]
               for op, _ in self.seconds}
        rows = [(f"ms a step, of {self.steps}", "calls", "forward", "backward", "both", "share")]
        for op, both in sorted(ops.items(), key=lambda item: -sum(item[1])):
            calls = f"{self.calls[op] / self.steps:g}" if self.calls[op] else "-"
            rows.append(row(op, calls, *both, sum(both)))
        between = self.total - sum(self.seconds.values())
        rows += [row("between ops, and the update", "", None, None, between),
                 row("a step", "", None, None, self.total)]
        return "\n".join(aligned(rows, "<>>>>>"))
