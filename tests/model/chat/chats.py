"""A small model that was made to chat, with a template in the manner of ChatML."""
from model import Transformer, TransformerConfig
from model.convert.hugging_face import ROLES
from model.convert.tokens import CHAT_TEMPLATE, TokenTokenizer, with_metadata
from tests.kit import opinionated
from tests.token_files import byte_level

CHATML = ("{% for message in messages %}{{ '[' + message.role + ']' + message.content }}"
          "<|end|>\n{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}")


def chat_tokenizer(template=CHATML):
    keys = {CHAT_TEMPLATE: (template, [8]), ROLES["bos_token"]: (5, [4])}
    return TokenTokenizer(with_metadata(byte_level(), {"keys": keys}), 0)


def chat_model(block_size=128):
    config = TransformerConfig(chat_tokenizer().vocab_size, block_size, 1, 2, 16)
    assert type(model := opinionated(config, 20)) is Transformer
    return model
