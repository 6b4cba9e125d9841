"""Texts: read, check, split and batch them, and count their n-grams; and whole files."""
from data.batches import IGNORE, Batch, Shuffled, random_batch, spread, split, windows
from data.ngrams import ngram_losses
from data.reading import KNOWN_TEXTS, Texts, cache_folder, read_text, read_texts
from data.text import Text, digest, repetition_warning
from data.tokenizer import TextError

__all__ = ["IGNORE", "KNOWN_TEXTS", "Batch", "Shuffled", "Text", "TextError", "Texts",
           "cache_folder", "digest", "ngram_losses", "random_batch", "read_text", "read_texts",
           "repetition_warning", "split", "spread", "windows"]
