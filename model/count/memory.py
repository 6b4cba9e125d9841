"""The memory that a model or a training step needs, compared with that of this machine before any
is taken."""
import math
import os
import pathlib
from contextlib import suppress

from minigrad.machine import control_groups
from minigrad.words import scaled
from model.command import as_flags
from model.count.sizes import parameters, state
from model.settings import Settings
from model.config import TransformerConfig


def memory_limit(*where: pathlib.Path) -> float:
    """Return the most bytes that this process may use: the least of the machine's memory and the
    limits of the process and its control groups; inf where none of these can be read.  `where` is
    passed to `control_groups`."""
    limits = [math.inf]
    with suppress(ImportError, OSError, ValueError):        # Windows, or another unknown system
        import resource
        limits += [limit for limit, _ in map(resource.getrlimit, (resource.RLIMIT_AS,
                                                                  resource.RLIMIT_DATA))
                   if limit != resource.RLIM_INFINITY]
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if os.name == "nt":
        import ctypes
        status = (ctypes.c_uint64 * 8)(64)      # MEMORYSTATUSEX, which begins with its size
        if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            limits.append(status[1])            # ullTotalPhys
    for group in control_groups("memory", *where):
        for name in ("memory.max", "memory.limit_in_bytes"):        # versions 2 and 1
            with suppress(OSError, ValueError):     # there is no such file, or no limit: "max"
                limits.append(float((group / name).read_text(encoding="ascii")))
    return float(min(limits))


def training_bytes(config: TransformerConfig, optimizer: str, batch_size: int) -> int:
    """Return the bytes of all arrays at the peak of a training step in float32, to about a tenth.

    For each parameter: itself, its gradient, and the optimiser's state.  For each token: in a
    block, 6 C, its keys and values, and the hidden channels of the MLP, three times where it has a
    gate; outside the blocks, 4 C and three times the V logits.
    """
    numbers = 2 * parameters(config) + state(config, optimizer)
    config = config.resolved()
    C = config.n_embd
    gated = config.activation == "swiglu"
    of_block = 6 * C + 2 * config.n_kv_head * config.d_head + config.n_inner * (1 + 2 * gated)
    of_token = config.n_layer * of_block + 4 * C + 3 * config.vocab_size
    return 4 * (numbers + batch_size * config.block_size * of_token)


def check_fits(needed: float, what: str, remedy: str = "take less of one of them") -> None:
    """Compare the bytes that something needs with the memory of this machine, before any is taken.

    Raises
    ------
    ValueError : it needs more.
    """
    if needed > (limit := memory_limit()):
        raise ValueError(f"{what} need {scaled(needed, 'B')} of memory, and this machine has "
                         f"{scaled(limit, 'B')}; {remedy}")


def check_memory(s: Settings, config: TransformerConfig) -> None:
    """Compare what a training step of a model needs with the memory of this machine, before any is
    taken.

    Raises
    ------
    ValueError : the step needs more.
    """
    ids = 16 * (s.characters - s.batch_size * s.block_size)     # of accumulated batches
    of_model = ["n_layer", "n_embd"]
    if config.ngrams > 1:
        of_model.append("ngram_rows")
    for batch_size, more, names in (
            (0, 0, of_model),
            (s.batch_size, ids, ("batch_size", "block_size", "gradient_accumulation_steps"))):
        flags = as_flags({name: getattr(s, name) for name in names})
        check_fits(training_bytes(config, s.optimizer, batch_size) + more, ", ".join(flags))
