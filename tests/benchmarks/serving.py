"""What the process of PyTorch's side does; it loads nothing of minigrad."""
import time
from multiprocessing.connection import Connection

from tests.benchmarks.timing import peak_memory


def serve(pipe: Connection, settings: dict) -> None:
    """Answer (what, arguments) with (result, seconds), or with what went wrong as text; `settings`
    are what twin.PyTorch is made from."""
    side = None
    while True:
        try:
            what, arguments = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if side is None:
                from tests.benchmarks.twin import PyTorch
                side = PyTorch(**settings)
            started = time.perf_counter()
            if what == "peak_memory":
                result = peak_memory()
            else:
                result = getattr(side, what)(*arguments)
            pipe.send((result, time.perf_counter() - started))
        except KeyboardInterrupt:
            return
        except Exception as error:      # a compiler has many ways to fail
            pipe.send((str(error).strip() or type(error).__name__).splitlines()[0])
