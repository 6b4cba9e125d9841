"""How a process that an MPI launcher has started joins the other ranks, and ends with them."""
import contextlib
import io
import os
import sys
import traceback
from collections.abc import Iterator

from minigrad.words import in_a_line
from model.answers import install_command
from model.ranks.mpi import EndedElsewhere, MPIRanks
from model.start import end_all_ranks

REMEDY = ("and start with the mpiexec of that environment, or build mpi4py with the MPI of this "
          "system (docs/ranks.md)")


@contextlib.contextmanager
def join(command: str, number: int, size: int | None) -> Iterator[MPIRanks]:
    """Join the other ranks, as the rank of this number.  Only the first one prints.  If one fails,
    all end with its status, and the first says why."""
    ranks = _ranks(command, number, size)
    errors = io.StringIO()
    with contextlib.ExitStack() as silence:
        if not ranks.first:
            nowhere = silence.enter_context(open(os.devnull, "w", encoding="utf-8"))
            silence.enter_context(contextlib.redirect_stdout(nowhere))
            silence.enter_context(contextlib.redirect_stderr(errors))
        try:
            yield ranks
            status = ranks.end(failed=False)
        except EndedElsewhere as error:
            status = ranks.follow(error.number)
        except SystemExit as end:
            message = errors.getvalue()
            status = end.code or 0
            if isinstance(status, str):
                message = message + status
                status = 1
            if not ranks.first and not status:
                message = f"{command}: --help is for all ranks or none; leave it out"
                status = 2
            status = ranks.end(True, status, message.strip())
        except BaseException:       # a mistake of the program itself
            status = ranks.end(True, 1, traceback.format_exc())
    if status:
        sys.exit(status)


def _ranks(command, number, size):
    """Return this process as a rank.  If MPI cannot be used, say why, and end all ranks."""
    problem = ""
    try:
        import mpi4py
        mpi4py.rc.thread_level = "funneled"     # one thread of a rank sends messages
        from mpi4py import MPI
        comm = MPI.COMM_WORLD
        if comm.Get_rank() != number or comm.Get_size() != (size or comm.Get_size()):
            problem = (f"the launcher has started {size or 'several'} ranks, and mpi4py finds "
                       f"{comm.Get_size()}: they belong to two MPIs")
    except (ImportError, RuntimeError) as error:
        problem = (f"this is one of several ranks, and mpi4py or its MPI cannot be used "
                   f"({in_a_line(error)})")
    if problem:
        end_all_ranks(number, f"{command}: {problem}; install both with "
                              f"{install_command('mpi')} {REMEDY}")
    return MPIRanks(comm)
