"""The encoder-decoder: its formula, its gradient, what each position sees, and what it writes."""
import numpy as np
import pytest

import minigrad as mg
from minigrad import Tensor
from minigrad.plug import watch_ops
from model import EncoderDecoder, EncoderDecoderConfig
from model.attention import attention, causal_mask
from model.reverse.encoder_decoder import BEGIN, END, PAD
from tests.checking import Counting, check_gradients, close, frozen, random_weights
from tests.kit import refusal

pytestmark = pytest.mark.late
V = 9
C = 8
H = 2
SOURCE, WRITTEN = np.random.default_rng(0).integers(3, V, size=(2, 3, 5))    # (B, S) each
SOURCE[1, 3:] = SOURCE[2, 1:] = PAD
TARGET = np.concatenate([np.full((3, 1), BEGIN), WRITTEN], axis=1)           # (B, T)
LENGTHS = 5, 3, 1


def model_of(dtype=np.float64, dropout=0.0, bias=True):
    """Small, with weights at which attention is far from uniform."""
    model = EncoderDecoder(EncoderDecoderConfig(V, 6, 2, H, C, dropout, bias), dtype=dtype)
    norms = {path: p.data.copy() for path, p in model.named_parameters() if "norm" in path}
    random_weights(model, scale=0.5)
    for path, p in model.named_parameters():
        if path in norms:
            p.data += norms[path]                                       # gains around 1
    return model


def test_the_model_is_what_its_description_says():
    """Embeddings, then blocks in the order of figure 1, each branch after a norm and added."""
    model = model_of()

    def heads(attend, x, context, mask):
        """The plain formula with the weights of each head, and the output projection."""
        mixed = [attention(head.query(x), head.key(context), head.value(context), mask)[0]
                 for head in attend.heads]
        return attend.out(mg.concatenate(mixed, axis=-1))

    def embedded(ids):
        return Tensor(model.token_embedding.weight.data[ids]
                      + model.position_embedding.weight.data[:ids.shape[1]])
    seen = (SOURCE != PAD)[:, None]                                     # (B, 1, S)
    x = embedded(SOURCE)
    for block in model.encoder:
        y = block.norm1(x)
        x = x + heads(block.attention, y, y, seen)
        x = x + block.mlp(block.norm2(x))
    memory = model.memory_norm(x)
    x = embedded(TARGET)
    for block in model.decoder:
        qkv = block.attention.qkv(block.norm1(x)).data.reshape(3, 6, 3, H, C // H)
        query, key, value = np.moveaxis(qkv, (2, 3), (0, 2))            # (B, H, T, D) each
        mixed, _ = attention(Tensor(query), Tensor(key), Tensor(value),
                             causal_mask(6, dtype=np.float64))
        x = x + block.attention.out(mixed.swapaxes(1, 2).reshape(3, 6, C))
        x = x + heads(block.across, block.norm2(x), memory, seen)
        x = x + block.mlp(block.norm3(x))
    logits = model.norm(x).data @ model.token_embedding.weight.data.T
    assert close([model(SOURCE, TARGET).data], [logits])


@pytest.mark.parametrize("bias, dropout", [(False, 0.0), (True, 0.3)], ids=["plain", "dropped"])
def test_the_gradient_by_all_parameters_agrees_with_central_differences(bias, dropout):
    assert check_gradients(model_of(dropout=dropout, bias=bias), SOURCE, TARGET, rng=frozen)
    model = model_of(np.float32, dropout, bias)
    for part in ("attention.heads.0.query", "across.heads.1.value", "mlp.up", "norm3"):
        assert any(f"{part}.bias" in path for path, _ in model.named_parameters()) == bias
    mg.cross_entropy(model(SOURCE, TARGET), TARGET).backward()
    for path, p in model.named_parameters():
        assert p.grad is not None and (p.grad != 0).any() and p.grad.dtype == np.float32, path


def test_dropout_needs_a_generator_and_falls_on_embeddings_attention_and_every_branch():
    whole = model_of()(SOURCE, TARGET).data
    model = model_of(dropout=0.4)
    assert np.array_equal(model(SOURCE, TARGET).data, whole)
    assert np.array_equal(model_of()(SOURCE, TARGET, frozen()).data, whole)
    first = Counting(np.random.PCG64(0))
    assert not np.allclose(whole, model(SOURCE, TARGET, first).data, atol=1e-3)
    encoder = 2 * (H + 2)                   # in each block: heads, and two branches
    decoder = 2 * (1 + H + 3)               # heads at once, heads across, and three branches
    assert first.drawn == 2 + encoder + decoder


def test_attention_maps_are_the_weights_that_the_layers_mix_values_with():
    model = model_of(dropout=0.4)
    mixed = []

    def note(event):
        if event.op == "scaled_dot_product_attention":          # a head of its own
            mixed.append((event.inputs[2].data, event.outputs[0].data))
        elif event.op == "self_attention":                      # all heads, packed
            value = event.inputs[0].data[..., -C:].reshape(3, 6, H, C // H).swapaxes(1, 2)
            out = event.outputs[0].data.reshape(3, 6, H, C // H).swapaxes(1, 2)
            mixed.extend((value[:, h], out[:, h]) for h in range(H))
    with mg.no_grad(), watch_ops(note):
        model(SOURCE, TARGET)
    within_source, within_target, across = model.attention_maps(SOURCE, TARGET)
    assert within_source.shape == (2, 3, H, 5, 5) and across.shape == (2, 3, H, 6, 5)
    assert within_target.shape == (2, 3, H, 6, 6)
    in_order = [*within_source, *(maps for layer in zip(within_target, across) for maps in layer)]
    weights = [maps[:, h] for maps in in_order for h in range(H)]
    for map, (value, out) in zip(weights, mixed, strict=True):
        assert close([map @ value], [out]) and np.ptp(map) > 0.3
        assert np.allclose(map.sum(axis=-1), 1, atol=1e-12)
    for maps in (within_source, across):
        assert not np.where((SOURCE == PAD)[:, None, None], maps, 0).any()      # (L, B, H, T, S)
        assert (maps[:, 0] > 0).all()                       # both ways, where nothing is padded
    assert np.array_equal(within_target > 0, np.broadcast_to(np.tri(6) > 0, within_target.shape))


def test_what_is_written_is_the_likeliest_token_each_time_and_ends_with_end():
    ends = 0
    for seed in range(8):
        model = EncoderDecoder(EncoderDecoderConfig(4, 6, 1, 1, 8), seed)
        random_weights(model, scale=seed)
        written = model.write(SOURCE % 4)
        assert 1 <= written.shape[1] <= 6
        logits = model(SOURCE % 4, np.concatenate([np.full((3, 1), BEGIN), written], 1)[:, :-1])
        for row, likeliest in zip(written, logits.data.argmax(axis=-1)):
            length = [*row, END].index(END) + 1
            assert np.array_equal(row[:length], likeliest[:length])
            assert (row[length:] == PAD).all()
            ends += length < len(row)
    assert ends


def test_write_of_a_model_that_never_ends_gives_as_many_tokens_as_its_block_has_places():
    model = model_of()
    likeliest = np.eye(V)[3:5]                                          # (B, V)
    model.decode = lambda target, *memory: Tensor(np.repeat(likeliest[:, None], target.shape[1], 1))
    assert np.array_equal(model.write(SOURCE[:2]), [[3] * 6, [4] * 6])


def test_sequences_and_heads_that_the_model_cannot_take_are_refused():
    model = model_of()
    for source, target, shape in ((np.full((1, 7), 3), TARGET[:1], "[1, 7]"),
                                  (SOURCE[:1], TARGET[:1, :0], "[1, 0]")):
        said = refusal(ValueError, model, source, target)
        assert "1 to block_size=6 tokens" in said and said.endswith(shape)
    assert "n_embd 8 does not split into n_head 3" in refusal(
        ValueError, EncoderDecoderConfig, V, 6, n_head=3, n_embd=8)
    for name, value in (("vocab_size", 2), ("block_size", 0), ("n_layer", 0), ("n_head", 0),
                        ("n_embd", 0), ("dropout", -0.1), ("dropout", 1.0)):
        assert name in refusal(ValueError, EncoderDecoderConfig,
                               **dict(vocab_size=V, block_size=6) | {name: value})


def test_a_configuration_that_claims_more_heads_than_weights_is_refused():
    config = EncoderDecoderConfig(V, 6, n_layer=3, n_head=4, n_embd=8)
    config.check_claim(12)
    assert "claims 3 layers of 4 heads, and holds 11 weights" in refusal(
        ValueError, config.check_claim, 11)


def test_what_writes_to_the_residual_stream_begins_smaller_the_more_layers_there_are():
    model = EncoderDecoder(EncoderDecoderConfig(V, 6, n_layer=3, n_head=2, n_embd=64))
    for block in (*model.encoder, *model.decoder):
        parts = [block.attention.out, block.mlp.down]
        if block in model.decoder:
            parts.append(block.across.out)
        for part in parts:
            assert part.weight.data.std() == pytest.approx(0.02 / 3, rel=0.06)
    assert model.token_embedding.weight.data.std() == pytest.approx(0.02, rel=0.15)
