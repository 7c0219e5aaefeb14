"""The progress of a training, from its output. The files in `bars` were printed by Keras 3.15 and tf_keras 2.21."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.record import to_dict
from drumline.run.progress import UNKNOWN, Progress, newest_first, read_progress

BARS = Path(__file__).parent / "bars"
LOGS = {path.stem: path.read_bytes() for path in sorted(BARS.glob("*.txt"))}
TQDM = "████▌     "

READ = {
    "step 120 loss 0.31": Progress(step=120, loss=0.31),
    "step=120, loss=0.31": Progress(step=120, loss=0.31),
    "step=120,loss=0.31": Progress(step=120, loss=0.31),
    "step: 20 - loss: 3.1e-05": Progress(step=20, loss=3.1e-05),
    "Step 120/1000: loss 0.31": Progress(step=120, steps=1000, loss=0.31),
    "iter 100: loss 2.3, time 100ms": Progress(step=100, loss=2.3),
    "epoch 3: loss 0.069804, accuracy 0.87": Progress(epoch=3, loss=0.069804),
    "epoch 3: loss 0.5, val_loss 0.7": Progress(epoch=3, loss=0.5),
    "epoch 3: val_loss 0.7, train_loss 0.5": Progress(epoch=3, loss=0.5),
    "[epoch 3/10] lr 0.1": Progress(epoch=3, epochs=10),
    "Epoch 3/10": Progress(epoch=3, epochs=10),
    "=== Epoch 3/10 ===": Progress(epoch=3, epochs=10),
    "Epoch [3/10], Step [100/600], Loss: 0.3": Progress(epoch=3, epochs=10, step=100, steps=600, loss=0.3),
    "epoch=2 step=40 lr=0.1 loss=1.0": Progress(epoch=2, step=40, loss=1.0),
    "step 40 (epoch 2): loss 1": Progress(epoch=2, step=40, loss=1.0),
    "global_step = 100, loss = 0.3": Progress(step=100, loss=0.3),
    "INFO:tensorflow:loss = 0.3, step = 100 (1.2 sec)": Progress(step=100, loss=0.3),
    "I1115 12:00:00.123456 1234 train.py:12] step 5, loss 0.1": Progress(step=5, loss=0.1),
    "2024-01-01 12:00:00,123 - INFO - Step 3: loss 0.2": Progress(step=3, loss=0.2),
    "[2024-01-01T12:00:00Z] step 5 loss=-inf": Progress(step=5, loss=-math.inf),
    "step 5 loss inf": Progress(step=5, loss=math.inf),
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3": Progress(epoch=1, loss=2.3),  # these are samples
    "Epoch: [0][  10/5005]\tTime  0.3 (0.4)\tLoss 6.9e+00 (7.0)": Progress(epoch=0, loss=6.9),
    f" 45%|{TQDM}| 45/100 [00:10<00:12,  4.50it/s, loss=0.3]": Progress(step=45, steps=100, loss=0.3, rate=4.5),
    f" 45%|{TQDM}| 45/100 [01:30<01:50,  2.00s/it]": Progress(step=45, steps=100, rate=0.5),
    f"  0%|{TQDM}| 0/100 [00:00<?, ?it/s]": Progress(step=0, steps=100),
    f"Epoch 3:  45%|{TQDM}| 45/100 [00:10<00:12,  4.50it/s, v_num=0, loss=0.3]": Progress(
        epoch=3, step=45, steps=100, loss=0.3, rate=4.5
    ),
    f"Train epoch 3/10:  45%|{TQDM}| 45/100 [00:10<00:12,  4.50batch/s]": Progress(
        epoch=3, epochs=10, step=45, steps=100, rate=4.5
    ),
    " 32/100 ━━━━━━━━━━━━━━━━━━━━ 3s 50ms/step - accuracy: 0.9 - loss: 0.31": Progress(
        step=32, steps=100, loss=0.31, rate=20.0
    ),
    " 40/100 [===========>..................] - ETA: 1:00 - loss: 0.31": Progress(
        step=40, steps=100, loss=0.31, rate=1.0
    ),
    "32/32 - 1s - 10ms/step - loss: 0.3": Progress(step=32, steps=32, loss=0.3, rate=100.0),
    "      7/Unknown 0s 100ms/step - loss: 1.2652 - mae: 1.0800": Progress(step=7, loss=1.2652, rate=10.0),
}

NOT_READ = [
    "resumed after epoch 3",
    "At step 5 loss 0.3 was seen",
    "Step 3: install the data",
    "Step 3/5: Downloading data",
    "step 3, loss of precision",
    "step 1,000 loss 0.3",
    "step 1.5 loss 0.3",
    "step 3 loss 30%",
    "step 12 of 10 loss 0.3",
    "step 3 step 4 loss 0.3",
    "epoch 3: val_loss 0.4",
    "epoch 3: validation loss 0.4",
    "steps_per_epoch: 100, loss: mse",
    "{'loss': 0.31, 'epoch': 0.32}",
    "2024/11/15 12:00:00 connected",
    "Test set: Average loss: 0.0512, Accuracy: 9820/10000 (98%)",
    f"Downloading:  45%|{TQDM}| 45/100 [00:10<00:12,  4.50it/s]",
    f"Validation:  45%|{TQDM}| 45/100 [00:10<00:12,  4.50it/s, loss=0.2]",
    f"Epochs:  45%|{TQDM}| 45/100 [00:10<00:12,  4.50s/epoch]",
    f"Map:  45%|{TQDM}| 45/100 [00:10<00:12,  4.50examples/s]",
    f"100%|{TQDM}| 170M/170M [00:10<00:00, 15.9MB/s]",
    "3/3 ━━━━━━━━━━━━━━━━━━━━ 0s 40ms/step",  # of predict
    "4/4 passed - 2s",
]


def log(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def spelled(progress: Progress) -> list[str]:
    """Return every number as text, so that NaN equals NaN."""
    return [repr(value) for value in to_dict(progress.replace(is_latest=False)).values()]


@pytest.mark.parametrize("line", READ)
def test_a_line_of_a_known_format_is_read(line: str) -> None:
    assert spelled(read_progress(log("loading", line))) == spelled(READ[line])
    assert spelled(read_progress(log(line, "saved model"))) == spelled(READ[line])


@pytest.mark.parametrize("line", NOT_READ)
def test_other_numbers_are_not_progress(line: str) -> None:
    assert read_progress(log(line)) == UNKNOWN


def test_a_loss_may_be_nan() -> None:
    found = read_progress(log("step 3 loss nan"))
    assert found.loss is not None
    assert math.isnan(found.loss)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("keras3", Progress(1, 2, 4, 4, 1.9127, 1 / 0.329), Progress(2, 2, 4, 4, 1.4152, 1 / 0.024)),
        ("keras3-lines", Progress(1, 2, 4, 4, 9.8583, 1 / 0.19), Progress(2, 2, 4, 4, 7.1541, 1 / 0.089)),
        ("keras2", Progress(1, 2, 4, 4, 1.8783, 1 / 0.045), Progress(2, 2, 4, 4, 1.371, 1 / 0.013)),
        ("keras2-lines", Progress(1, 2, 4, 4, 3.7848, 1 / 0.127), Progress(2, 2, 4, 4, 2.7631, 1 / 0.013)),
    ],
)
def test_keras_is_read_in_each_of_its_epochs(name: str, first: Progress, second: Progress) -> None:
    for epoch, expected in ((1, first), (2, second)):
        before, header, after = LOGS[name].partition(b"Epoch %d/2\n" % epoch)
        found = read_progress(before + header + after[: after.index(b"\n") + 1])
        assert found.replace(rate=None) == expected.replace(rate=None, is_latest=True)
        assert found.rate == pytest.approx(expected.rate)


def test_a_bar_after_the_last_epoch_belongs_to_no_epoch() -> None:
    for name in ("keras2", "keras3"):
        found = read_progress(LOGS[name])
        assert (found.epoch, found.epochs, found.step, found.steps) == (None, None, 3, 3)


def test_a_new_epoch_has_no_step_yet_and_the_last_loss() -> None:
    found = read_progress(log("Epoch 1/9", "4/4 - 1s - 190ms/step - loss: 9.5", "Epoch 2/9"))
    assert found == Progress(epoch=2, epochs=9, loss=9.5)


def test_steps_belong_to_the_epoch_that_was_announced_and_not_to_one_that_is_over() -> None:
    found = read_progress(log("Epoch 2/9", "step 7 loss 0.5"))
    assert (found.epoch, found.epochs, found.step) == (2, 9, 7)
    found = read_progress(log("epoch 2: loss 0.4", "step 7 loss 0.5"))
    assert (found.epoch, found.epochs, found.step) == (None, None, 7)


def test_of_two_epochs_without_a_step_the_last_one_is_current() -> None:
    assert read_progress(log("Epoch 1/9", "Epoch 2/9")) == Progress(epoch=2, epochs=9)


def test_steps_after_an_epoch_that_is_over_do_not_belong_to_the_one_that_was_announced_before() -> None:
    found = read_progress(log("Epoch 1/9", "epoch 2: loss 0.4", "step 7 loss 0.5"))
    assert (found.epoch, found.epochs, found.step) == (None, None, 7)


def test_the_loss_of_an_incomplete_bar_is_read_when_another_word_follows_it() -> None:
    assert read_progress(b"2/9 [==>..] - ETA: 7s - loss: 0.2 - accuracy: 0.9").loss == 0.2
    assert read_progress(b"2/9 [==>..] - ETA: 7s - loss: 0.2").loss is None


@pytest.mark.parametrize(("length", "end"), [(8000, 3), (8001, 8001)])
def test_a_bar_ends_before_the_backspaces_after_it_unless_the_line_is_too_long(length: int, end: int) -> None:
    (piece,) = newest_first(b"4/9".ljust(length, b"\b"), is_cut=False)
    assert (piece.text, piece.end) == ("4/9", end)


def test_an_incomplete_line_is_not_read_but_an_incomplete_bar_is() -> None:
    found = read_progress(b"step 11 loss 0.5\nstep 12 loss 0.2")
    assert (found.step, found.steps, found.loss) == (11, None, 0.5)
    bar = b"Epoch 1/2\n\r1/9 [=>...] - ETA: 8s - loss: 0.5\b\b\b\r2/9 [==>..] - ETA: 7s - loss: 0.2"
    assert read_progress(bar) == Progress(1, 2, 2, 9, 0.5, 1.0, is_latest=True)


def test_output_after_the_last_progress_is_detected() -> None:
    assert read_progress(log("step 1 loss 2")).is_latest
    assert not read_progress(log("step 1 loss 2", "saved")).is_latest
    assert not read_progress(log("step 1 loss 2") + b"step 2 lo").is_latest


def test_the_remaining_time_needs_step_total_and_rate() -> None:
    bar = Progress(epoch=2, epochs=4, step=30, steps=100, rate=10.0)
    assert (bar.steps_eta_seconds, bar.eta_seconds) == (7.0, 27.0)
    assert bar.replace(epochs=None).eta_seconds is None
    assert bar.replace(epoch=0).eta_seconds is None
    for less in (bar.replace(step=None), bar.replace(steps=None), bar.replace(rate=None)):
        assert (less.steps_eta_seconds, less.eta_seconds) == (None, None)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_can_be_read(tail: bytes, is_cut: bool) -> None:
    assert isinstance(read_progress(tail, is_cut=is_cut), Progress)


PIECES = st.one_of(
    st.sampled_from([*READ, *NOT_READ, "", "\x1b[1m4/4\x1b[0m ━━ 2s 3ms/step - loss: 1.9"]),
    st.text("step loss=:/[]|%0123456789.,-epoch naif", max_size=30),
)


@given(st.lists(st.tuples(PIECES, st.sampled_from(["\n", "\r", "\r\n"])), max_size=12), st.data())
def test_a_cut_log_has_the_same_progress_or_less(pieces: list[tuple[str, str]], data: st.DataObject) -> None:
    whole = "".join(text + end for text, end in pieces).encode()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    less, more = spelled(read_progress(whole[start:end], is_cut=start > 0)), spelled(read_progress(whole[:end]))
    assert all(cut in ("None", full) for cut, full in zip(less, more, strict=True))


@pytest.mark.parametrize("name", LOGS)
def test_every_prefix_of_a_real_log_gives_numbers_that_were_printed(name: str) -> None:
    data = LOGS[name]
    ends = [at + 1 for at, byte in enumerate(data) if byte in b"\r\n"]
    shown = [set(column) for column in zip(*(spelled(read_progress(data[:end])) for end in ends), strict=True)]
    for end in range(len(data)):
        found = spelled(read_progress(data[:end]))
        assert all(value == "None" or value in column for value, column in zip(found, shown, strict=True)), end


def test_an_epoch_is_announced_when_its_line_has_ended() -> None:
    assert read_progress(b"~~~ Epoch 2/9 ~~~") == UNKNOWN
    assert read_progress(b"~~~ Epoch 2/9 ~~~\n").epoch == 2


def test_a_tail_that_begins_within_a_line_is_read_from_the_next_line() -> None:
    assert read_progress(b"\nstep 3 loss 0.5\n", is_cut=True).step == 3
    assert read_progress(b"step 3 loss 0.5\n", is_cut=True) == UNKNOWN


@pytest.mark.parametrize(("length", "is_read"), [(2000, True), (2001, False)])
def test_a_line_of_up_to_two_thousand_characters_is_read(length: int, is_read: bool) -> None:
    line = "step 3 loss 0.5 ".ljust(length, "x")
    assert (read_progress(log(line)).step == 3) is is_read


@pytest.mark.parametrize(
    ("rate", "expected"), [("0.0000000005", None), ("0.5", 0.5), ("2000000000", None), ("?", None), (".", None)]
)
def test_a_rate_that_is_too_large_is_ignored(rate: str, expected: float | None) -> None:
    assert read_progress(log(f" 45%|{TQDM}| 45/100 [00:10<00:12,  {rate}it/s, loss=0.3]")).rate == expected


def test_the_rate_of_a_bar_follows_from_its_remaining_time() -> None:
    bar = "40/100 [====>.....] - ETA: {} - loss: 0.31"
    assert read_progress(log(bar.format("1:00:00"))).rate == 60 / 3600
    assert read_progress(log(bar.format("30s"))).rate == 2.0
    assert read_progress(log(bar.format("0s"))).rate is None
    assert read_progress(log("40/100 [====>.....] - 3s 0us/step - loss: 0.31")).rate is None


def test_a_step_without_a_loss_has_the_last_loss() -> None:
    found = read_progress(log("step 1 loss 0.5", f" 45%|{TQDM}| 45/100 [00:10<00:12,  4.50it/s]"))
    assert (found.step, found.loss) == (45, 0.5)
