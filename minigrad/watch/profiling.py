"""The time of training by op, forward and backward."""
import time
from collections import Counter

from minigrad.core import watch_ops


class Profile:
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
        self._watching = watch_ops(self._note)
        self._watching.__enter__()
        self._entered = time.perf_counter()
        return self

    def __exit__(self, *error) -> None:
        self.total += time.perf_counter() - self._entered
        self.steps += 1
        self._watching.__exit__(*error)

    def _note(self, event):
        self.seconds[event.op, event.direction] += event.seconds
        self.calls[event.op] += event.direction == "forward"

    def table(self) -> str:
        """Return a table of the milliseconds of a step, the costliest op first."""
        def line(name, calls, forward, backward, seconds):
            return (f"{name:30}{calls:>8}{forward:>12}{backward:>12}{ms(seconds):>12}"
                    f"{seconds / max(self.total, 1e-9):>8.0%}")

        def ms(seconds):
            return f"{1e3 * seconds / max(self.steps, 1):,.2f}" if seconds else "-"
        ops = {op: [self.seconds[op, way] for way in ("forward", "backward")]
               for op, _ in self.seconds}
        lines = [f"{'ms a step, of ' + str(self.steps):30}{'calls':>8}{'forward':>12}"
                 f"{'backward':>12}{'both':>12}{'share':>8}"]
        for op, (forward, backward) in sorted(ops.items(), key=lambda item: -sum(item[1])):
            lines.append(line(op, f"{self.calls[op] / self.steps:g}" if self.calls[op] else "-",
                              ms(forward), ms(backward), forward + backward))
        in_ops = sum(self.seconds.values())
        lines.append(line("between ops, and the update", "", "", "", self.total - in_ops))
        lines.append(line("a step", "", "", "", self.total))
        return "\n".join(lines)
