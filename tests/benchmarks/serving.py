"""What the process of another library's side does; it loads nothing of minigrad."""
import importlib
import time
from multiprocessing.connection import Connection

from tests.benchmarks.timing import peak_memory


def serve(pipe: Connection, where: str, settings: dict) -> None:
    """Answer (what, arguments) with (result, seconds), or with what went wrong as text; `settings`
    are what the side is made from, a class of this folder such as twin.PyTorch."""
    side = None
    while True:
        try:
            what, arguments = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if side is None:
                module, name = where.split(".")
                module = importlib.import_module(f"tests.benchmarks.{module}")
                side = getattr(module, name)(**settings)
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
