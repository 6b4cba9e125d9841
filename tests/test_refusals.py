"""A user's mistake is answered in one line that names it, without a traceback or a file.

    (command, flags, words)     the line has these words, with others where ... stands; of several
                                mistakes, a list of lines

A word in CAPITALS stands for a text (SMALL_TEXT), the folder of a run (TRAINED), or an empty folder
(EMPTY).  The commands run in a folder that holds FILES.
"""
import importlib
import os
import shlex

import pytest

COMMANDS = {"train": "train", "sample": "model.sample",
            **{name: f"model.{name}.__main__" for name in ("convert", "count", "explain", "look",
                                                           "replay", "reverse", "walk")}}
FILES = {"short.txt": b"too short", "latin1.txt": b"caf\xe9", "empty.txt": b"", "one.txt": b"t",
         "same.txt": b"a" * 3000, "blank.txt": b" \r\n\t" * 3000,
         "long.txt": b"the \n" * 20_000 + b"t", "accent.txt": "the \xe9".encode()}
# Settings of train.py that cannot work, and what is said of each.
SETTINGS = [
    ("--batch_size 0", "at least 1 ... not 0"), ("--learning_rate -1", "at least 0 ... not -1.0"),
    ("--muon_lr -1", "at least 0"), ("--optimizer moun", "adamw or muon ... did you mean muon?"),
    ("--max_iters -1", "at least 0"), ("--minutes 0", "above 0"), ("--minutes inf", "finite"),
    ("--decay_share 1.5", "above 0 and at most 1 ... 1.5"), ("--min_lr -0.1", "at least 0"),
    ("--schedule cosin", "did you mean cosine?"), ("--weight_decay inf", "finite"),
    ("--beta1 1", "below 1"), ("--dropout 1", "below 1"), ("--grad_clip nan", "at least 0"),
    ("--n_embd 30", "--n_head 4 ... --n_embd 24 or 32"), ("--n_embd 3", "take --n_embd 8"),
    ("--n_embd 36 --position learned --n_head 8", "take --n_embd 32 or 40"),
    ("--n_kv_head 3", "--n_head 4 ... take --n_kv_head 1, 2 or 4"),
    ("--head_dim 0", "at least 1"), ("--ahead -1", "at least 0"),
    ("--ahead 8 --block_size 8", "looks beyond the block of 8; give 7 or less"),
    ("--head_dim 5 --position rotary", "--head_dim 5 is odd ... take --head_dim 6"),
    ("--n_kv_head 2 --n_head 1", "take --n_kv_head 1"), ("--n_kv_head 0", "at least 1"),
    ("--on_nan go_on", "stop or skip"),
    ("--position rotory", "sinusoidal ... did you mean rotary?"),
    ("--norm rmsnorm", "is layer, rms ... rms_gain ... did you mean rms?"),
    ("--activation relu", "swiglu ... did you mean relu2?"), ("--ngrams 0", "at most 1000"),
    ("--ngram_dropout -0.1", "at least 0 and below 1"), ("--seed -1", "at least 0"),
    ("--threads 100000", "at most ... not 100000"), ("--recipe modem", "did you mean modern?")]
ON_POSIX = os.name == "posix"
# Windows has other words for these.
TOO_LONG = " ... File name too long" if ON_POSIX else ""
ENDLESS = "zero ... unknown format" if ON_POSIX else "zero ... there is no"
ROWS = [
    *[("train", flags, f"{flags.split()[0]} ... {words}") for flags, words in SETTINGS],
    ("train", "--max_itres 3", "no flag --max_itres ... did you mean --max_iters?"),
    ("train", "--max_iters many", "--max_iters ... whole number ... many"),
    ("train", "--lr 1", "no flag --lr ... did you mean --learning_rate?"),
    ("train", "short.txt --minutes 1", "no flag takes ... give a text as --data short.txt"),
    ("train", "--init_from ''", "--init_from takes a value, and an empty one was given"),
    ("train", "--data ''", "--data takes a value, and an empty one was given"),
    ("train", "'my text.txt'", "give a text as --data 'my text.txt'"),
    ("train", "--bias resume", "did you mean --init_from resume?"),
    ("sample", "EMPTY", "did you mean --out_dir /"),
    ("train", "--replay nan.npz", "no flag --replay; python -m model.replay --out_dir FOLDER"),
    ("train", "--log_interval 5", "no flag --log_interval; the progress bar shows new numbers"),
    ("replay", "--out_dir nan.npz", "nan.npz is no file"),
    ("train", "--data lanten", 'did you mean "lantern"?'),
    ("train", "--data latin1.txt", "byte 0xe9 at position 3"),
    ("train", "--data short.txt --recipe gpt2", "--block_size 64 needs 65 characters"),
    ("train", "--data blank.txt", "blank.txt ... only spaces and line breaks ... give a file"),
    ("train", "--data same.txt", "one character only ... nothing to learn"),
    ("train", "--batch_size 1000000000000 --data SMALL_TEXT", "--batch_size ... of memory"),
    ("train", "--out_dir short.txt", "--out_dir short.txt ... is a file ... such as ."),
    ("train", "--out_dir short.txt/out", "short.txt is a file"),
    ("train", f"--out_dir {300 * 'x'}", f"--out_dir x{TOO_LONG}"),
    ("train", "--recipe gpt2 --max_itres 3 --learning_rate fast --batch_size 0 --n_embd 30 "
              "--data short.txt --out_dir one.txt",
     ["--learning_rate ... a number ... fast", "--batch_size", "--max_itres", "--n_embd 30",
      "--out_dir one.txt", "--block_size 64 ... 65 characters"]),
    ("train", "--init_from resume --out_dir 'a\nb\x1b'", r"a\nb\x1b ... no checkpoint"),
    ("train", "--init_from resum", "did you mean resume?"),
    ("train", "--init_from resume --out_dir TRAINED --n_layer 2",
     "--n_layer 1 ... cannot become 2 ... leave the flag out"),
    ("train", "--init_from resume --out_dir TRAINED --data lantern", "not the one ... --data"),
    ("train", "--init_from TRAINED --n_embd 8", "--n_embd 16 ... cannot become 8"),
    ("train", "--init_from TRAINED --block_size 17", "--block_size 17 ... 16 positions"),
    ("sample", "--out_dir EMPTY", "no checkpoint"),
    ("sample", "--out_dir short.txt", "short.txt is damaged or no checkpoint ... ; train anew; "),
    ("train", "--init_from resume --out_dir short.txt", "short.txt is a file ... give ."),
    ("sample", "--out_dir TRAINED --start 'the \xc9'",
     "'\xc9' ... LATIN CAPITAL LETTER E WITH ACUTE ... position 4 ... nearest are 'e'"),
    ("sample", "--temperature -1 --top_k 0 --top_p 2", [
        "--temperature ... at least 0 ... -1", "--top_k ... at least 1",
        "--top_p ... at most 1"]),
    ("sample", "--start -x", "--start takes a value ... hyphen ... --start=-value"),
    ("sample", "--num_samples 0 --max_new_tokens 0", ["--num_samples ... at least 1",
                                                      "--max_new_tokens ... at least 1"]),
    ("sample", "--out_dir TRAINED --start FILE:no.txt", "there is no file 'no.txt' ... FILE:path"),
    ("sample", "--out_dir TRAINED --score one.txt", "two characters ... has 1"),
    ("sample", "--out_dir TRAINED --score empty.txt", "is empty"),
    ("sample", "--out_dir TRAINED --score accent.txt",
     "LATIN SMALL LETTER E WITH ACUTE ... position 4 ... --skip_unknown"),
    ("sample", "--score a --interactive --seed 3", "leave out --interactive, --seed"),
    ("sample", "--skip_unknown", "--score"),
    ("sample", "--prove", "--score"),
    ("walk", "0", "--station ... at least 1 and at most 13 ... not 0"),
    ("walk", "five", "--station takes a whole number, not 'five'"),
    ("walk", "--station two", "--station ... a whole number ... 'two'"),
    ("walk", "3 --exercise", "--station and --exercise ... give one of them"),
    ("walk", "--page w.txt", "ends in .html ... w.txt"),
    ("walk", "--page no/w.html", "w.html ... No such file"),
    ("walk", "--exercise short.txt", "--exercise is a folder ... short.txt ... give another name"),
    ("count", "--n_head 3", "--n_embd 128 does not split into --n_head 3 ... take --n_embd"),
    ("count", "--n_layer 0 --vocab_size 0", ["--n_layer ... at least 1 ... not 0",
                                             "--vocab_size ... at least 1 ... not 0"]),
    ("count", "--recipe gtp2", "modern or gpt2 ... not gtp2 ... did you mean gpt2?"),
    ("count", "--out_dir EMPTY", "no checkpoint"),
    ("count", "--out_dir EMPTY --bias", "leave out --bias"),
    ("reverse", "--text Hi", "--text ... from a to z ... 'H' (LATIN CAPITAL"),
    ("reverse", f"--text {11 * 'a'}", "--text ... 1 to --block_size=10 letters ... 11"),
    ("reverse", "--task double", "--task ... reverse or sort ... double"),
    ("reverse", "--block_size 3", "--block_size ... at least 4 ... not 3"),
    ("reverse", "--max_iters -1 --dropout 1", ["--max_iters ... at least 0",
                                               "--dropout ... at least 0 and below 1 ... 1.0"]),
    *[("reverse", f"{flags} --out_dir out", f"{flags} ... of memory ... take less of one of them")
      for flags in ("--n_layer 100000000", "--n_embd 10000000", "--batch_size 10000000000",
                    "--block_size 10000000000")],
    ("reverse", "--learning_rate nan", "--learning_rate ... above 0 ... nan"),
    ("reverse", "--threads 999", "--threads ... at most"),
    ("reverse", "--n_head 3", "--n_embd 32 does not split into --n_head 3 ... --n_embd 30 or 33"),
    ("reverse", "--out_dir short.txt", "cannot use short.txt"),
    ("look", "--out_dir EMPTY", "no checkpoint"),
    ("look", "--out_dir TRAINED --no-live --text 'the \xc9'", "LATIN CAPITAL LETTER E WITH ACUTE"),
    ("look", "--out_dir TRAINED --live --text FILE:long.txt", "100,001 characters ... 100,000"),
    ("look", "-o out/ckpt.npz", "--output ... ends in .html ... out/ckpt.npz"),
    ("look", "TRAINED nowhere", "nowhere is not there ... give the folders of runs of train.py"),
    ("look", "TRAINED EMPTY", "holds no log.csv ... give the folder of such a run"),
    ("look", "TRAINED TRAINED", "is given twice ... give each run once"),
    ("look", "TRAINED EMPTY --text the", "--text is for one run ... leave out one or the other"),
    ("look", "TRAINED TRAINED --beside EMPTY", "--beside is for one run ... leave out one or the"),
    ("look", "TRAINED --beside EMPTY", "no checkpoint"),
    ("look", "TRAINED --no-live --beside EMPTY", "--beside needs ... --no-live ... leave out one"),
    ("explain", "-o drawn.png", "ends in .svg ... drawn.png"),
    ("explain", "--of head", "expression, attention, block ... not of 'head'"),
    ("explain", "--of block -o nowhere/drawn.svg", "nowhere ... drawn.svg ... No such file"),
    ("convert", "", "arguments are required: FROM, TO"),
    ("convert", "a -x", "arguments are required: TO; see --help ... starts with a hyphen as ./-"),
    ("convert", "'' ''", ["FROM takes a value ... an empty one was given",
                          "TO takes a value ... an empty one was given"]),
    ("convert", "a b c", "no flag takes 'c'"),
    ("convert", "TRAINED a --tokenizer t.json", "ckpt.npz has its own ... leave out --tokenizer"),
    ("convert", "nowhere a", "there is no nowhere ... give a file or folder"),
    ("convert", "EMPTY a", "holds none of config.json, ckpt.npz, ckpt.pt ... give the folder"),
    ("convert", "short.txt a", "short.txt ... unknown format ... .npz, .safetensors, .gguf, .pt"),
    ("convert", "/dev/zero a", ENDLESS),
    ("convert", "TRAINED a.gguf --as q4_k", "--as ... llama-quantize"),
    ("convert", "TRAINED a.pt", "a.pt ... not written ... .npz, .safetensors or .gguf"),
    ("convert", "TRAINED one.txt", "one.txt is there already ... give another name"),
    *[(command, f"{flags} ''", f"{flags.split()[-1]} ... an empty one was given")
      for command, flags in (
          ("walk", "--exercise"), ("walk", "--page"), ("walk", "--check"),
          ("reverse", "--max_iters 0 --out_dir"), ("convert", "a b --tokenizer"),
          ("look", "--output"), ("look", "--out_dir"), ("sample", "--out_dir"),
          ("sample", "--score"), ("count", "--out_dir"), ("replay", "--out_dir"),
          ("train", "--explain --out_dir"))],
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command, flags, words", ROWS,
                         ids=lambda value: value[:60] if isinstance(value, str) else "")
def test_a_mistake_is_answered_in_a_line_and_leaves_no_file(
        command, flags, words, folder, request, tmp_path_factory, capsys):
    paths = {"SMALL_TEXT": lambda: request.getfixturevalue("small_text"),
             "TRAINED": lambda: request.getfixturevalue("trained"),
             "EMPTY": lambda: tmp_path_factory.mktemp("empty")}
    argv = [str(paths[word]()) if word in paths else word for word in shlex.split(flags)]
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(COMMANDS[command]).main(argv)
    out, err = capsys.readouterr()
    status = caught.value.code
    lines = (f"{err}{status}\n" if isinstance(status, str) else err).split("\n")[:-1]
    program = "train.py" if command == "train" else f"model.{command}"
    if status == 2:
        program += ": error"
    else:
        assert isinstance(status, str)
    expected = [words] if isinstance(words, str) else words
    assert out == "" and len(lines) == len(expected), (out, lines)
    for line, says in zip(lines, expected):
        assert line.startswith(f"{program}: ") and line.isprintable()
        assert all(part in line for part in says.split(" ... ")), line
    assert {path.name for path in folder.iterdir()} == FILES.keys()
