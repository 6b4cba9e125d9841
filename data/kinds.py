"""What a file is that is no text, by its first bytes."""
import re

PACKED = "unpack it, and give the text that was in it"
SAVE = "open it in the program that wrote it, save it as text (.txt, UTF-8), and give that"
NUMBERS = "give the text itself"
NO_TEXT = "give a text file"
# With what a file begins, and some that follows; what it is; and what to do.
KINDS = (
    (rb"\x1f\x8b", "a gzip file", "gunzip it, and give the text that was in it"),
    (rb"BZh[1-9]1AY&SY", "a bzip2 file", "bunzip2 it, and give the text that was in it"),
    (rb"\xfd7zXZ\0", "an xz file", "unxz it, and give the text that was in it"),
    (rb"\x28\xb5\x2f\xfd", "a zstd file", "unzstd it, and give the text that was in it"),
    (rb"\x1f[\x9d\xa0]|\x04\x22\x4d\x18|\x5d\0\0.\0", "a compressed file", PACKED),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", PACKED),
    (rb"Rar!\x1a\x07", "a RAR archive", PACKED),
    (rb".{257}ustar(\x0000|  \0)", "a tar archive", PACKED),
    (rb"PK\x03\x04.*word/document", "a Word file", SAVE),
    (rb"PK\x03\x04.*xl/workbook", "an Excel file", SAVE),
    (rb"PK\x03\x04.*ppt/presentation", "a PowerPoint file", SAVE),
    (rb"PK\x03\x04.{26}mimetypeapplication/epub", "an e-book (EPUB)",
     "convert it to text, for example with Calibre, and give that"),
    (rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis", "a LibreOffice file", SAVE),
    (rb"PK\x03\x04.*/data\.pkl", "a PyTorch file", NUMBERS),
    (rb"PK\x03\x04.*\.npy", "an .npz file of arrays, such as a checkpoint", NUMBERS),
    (rb"PK[\x03\x05][\x04\x06]", "a zip archive", PACKED),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of Word, Excel or another old Office program",
     SAVE),
    (rb"(\xef\xbb\xbf)?\s*%PDF-", "a PDF", "take its text out, for example with pdftotext, and "
     "give that"),
    (rb"(\xef\xbb\xbf)?\s*\{\\rtf", "a rich text file (RTF)", SAVE),
    (rb"%!PS-Adobe", "a PostScript file", "take its text out, for example with ps2ascii, and give "
     "that"),
    (rb".{60}BOOKMOBI", "an e-book (MOBI)", "convert it to text, for example with Calibre, and "
     "give that"),
    (rb"\x93NUMPY", "an .npy file, an array", NUMBERS),
    (rb"\x80[\x02-\x05]", "a pickle of Python", NUMBERS),
    (rb"GGUF.\0\0\0", "a model in a GGUF file", NUMBERS),
    (rb".{5}\0{3}\{\s*\"", "a model in a safetensors file", NUMBERS),
    (rb"\x89HDF\r\n", "an HDF5 file", NUMBERS),
    (rb"SQLite format 3\0", "an SQLite database", "take its text out, and give that"),
    (rb"PAR1\x15|ARROW1\0\0", "a table in a Parquet or Arrow file",
     "take its text out, and give that"),
    (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a.{1,6}\0|RIFF.{4}WEBP|BM.{4}\0{4}|II\*\0|MM\0\*",
     "an image", NO_TEXT),
    (rb"RIFF.{4}(WAVE|AVI )|ID3[\x02-\x04]\0|OggS\0|fLaC\0|\0{3}.ftyp|\x1aE\xdf\xa3",
     "sound or a film", NO_TEXT),
    (rb"\x7fELF|MZ.\0|\xcf\xfa\xed\xfe|\xca\xfe\xba\xbe|\0asm", "a program", NO_TEXT))
PAGE = rb"(\xef\xbb\xbf)?\s*(<!doctype html|<html|<\?xml)"


def kind_of(raw: bytes) -> str | None:
    """Return what a file is if it is no text, and what to do, for the end of a sentence."""
    for beginning, what, remedy in KINDS:
        if re.match(beginning, raw, re.DOTALL):
            return f"{what}; {remedy}"


def is_page(raw: bytes) -> bool:
    """Whether a text is HTML or XML."""
    return re.match(PAGE, raw, re.IGNORECASE) is not None
