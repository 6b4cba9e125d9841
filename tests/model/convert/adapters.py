"""Checkpoints of adapters, whose bases are small models of characters."""
import pathlib

from data.tokenizer import CharTokenizer
from model import Transformer, save_checkpoint
from model.lora.base import seal_of
from tests.kit import normal
from tests.model.lora.adapters import adapted, trained_a_little

CHARACTERS = "abcdefgh ijklm\nnopqrst\\uvwxyzäöüé漢🙂.,A\t"


def saved_adapter(config, folder, training=None, **changed):
    """Save a base in FOLDER/base and an adapter of it in FOLDER/on; return the adapter."""
    folder = pathlib.Path(folder).absolute()
    base = Transformer(config, seed=1)
    for n, p in enumerate(base.parameters()):
        p.data += 0.12 * normal(*p.shape, seed=n, dtype=p.dtype)
    path = folder / "base" / "ckpt.npz"
    save_checkpoint(path, base, CharTokenizer.of(CHARACTERS))
    model = trained_a_little(adapted(config, base, base=str(path), base_seal=seal_of(path),
                                     **changed))
    save_checkpoint(folder / "on" / "ckpt.npz", model, CharTokenizer.of(CHARACTERS), training)
    return model
