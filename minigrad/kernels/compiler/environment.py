"""Check the environment's settings for Numba before Numba is loaded, whose own error would not say
what to do."""
import os


def problem(environment: dict[str, str]) -> str:
    """Return a line on what Numba cannot accept; "" if there is nothing."""
    value = environment.get("NUMBA_NUM_THREADS", "1").strip()
    if value.isdecimal() and int(value) > 0:
        return ""
    return (f"NUMBA_NUM_THREADS is a whole number of at least 1, not {value!r}; set it to the "
            "number of threads to use, or unset it")


# Intel's library of vector functions, if it is installed, gives other bits than libm.
os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")

if _problem := problem(os.environ):
    raise ValueError(_problem)
