"""A small safetensors file."""
from model import CharTokenizer, Transformer, TransformerConfig
from model.convert import safetensors
from model.convert.model_file import ModelFile

TOKENIZER = CharTokenizer.of("b\n'a\0é漢🙂")
SIZES = dict(vocab_size=TOKENIZER.vocab_size, block_size=5, n_layer=2, n_head=2, n_embd=4)
CONFIG = TransformerConfig(**SIZES)


def written(path):
    found = ModelFile("checkpoint", CONFIG, Transformer(CONFIG).state_dict(), TOKENIZER)
    safetensors.write(path, found)
    return found
