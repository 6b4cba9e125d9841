"""llama.cpp, by the library xllamacpp, in a process of its own."""
import xllamacpp

from tests.benchmarks.sizes import TEMPERATURE


class LlamaCpp:
    """The model of a GGUF file, with as many threads as are given."""

    def __init__(self, path, threads):
        given = xllamacpp.CommonParams()
        given.model.path = path
        given.n_ctx, given.n_parallel, given.verbosity = 512, 1, -1
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
        self.server = xllamacpp.Server(given)

    def generate(self, ids, count):
        """Draw tokens after ids (1, T), which are read anew."""
        self.server.handle_completions(dict(
            prompt=ids[0].tolist(), n_predict=count, temperature=TEMPERATURE, ignore_eos=True,
            cache_prompt=False))

    def logits(self, ids):
        """Read ids (1, T), and draw a token."""
        self.generate(ids, 1)
