"""A share of the card: raised as one where the card's size is known, else told how to compute."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import read_log
from tests.memscope.interop.oom_log.messages import oom_line

GIB = 2**30
TOO_LITTLE = (
    "To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (8.00 GiB)."
)
TOKENS = (
    "The model's max seq len (40960) is larger than the maximum number of tokens that can be "
    "stored in KV cache (20480). Try increasing `gpu_memory_utilization`"
)
NO_BLOCKS = "ValueError: No available memory for the cache blocks. Try increasing"
CARD = "Free memory on device (79.00/80.00 GiB) on startup. Desired GPU memory utilization is x\n"
SHARE = "INFO non-default args: {'gpu_memory_utilization': 0.9}\n"


def explain(text: str) -> Explanation:
    return explain_log(read_log(io.BytesIO(text.encode())))


def share_advice(text: str) -> Advice:
    found = [each for each in explain(text).help if "--gpu-memory-util" in each.setting]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("log", "setting", "reason", "frees"),
    [
        (SHARE + CARD + TOO_LITTLE, "0.93", "at least; it was 0.90", round(0.03 * 80 * GIB)),
        (CARD + TOO_LITTLE, "higher by 0.03", "a share of the card's 80.00 GiB", None),
        (SHARE + TOO_LITTLE, "above 0.90", "a share of the card: add 2.00 GiB / its size", None),
        (SHARE + TOO_LITTLE, "above 0.90", "; at most 0.08 is left", None),
        (TOO_LITTLE, "higher", "a share of the card: add 2.00 GiB / its size", None),
        (SHARE + CARD + "Available KV cache memory: 2.00 GiB\n" + TOKENS, "0.93", "0.90", None),
        (SHARE + CARD + TOKENS, "above 0.90", "does not say how much", None),
        (
            SHARE + CARD + "Available KV cache memory: -3.00 GiB\n" + NO_BLOCKS,
            "0.94",
            "it was 0.90",
            round(0.04 * 80 * GIB),
        ),
        (SHARE + NO_BLOCKS, "above 0.90", "does not say how much", None),
    ],
)
def test_bytes_become_a_share_where_the_card_is_known(
    log: str, setting: str, reason: str, frees: int | None
) -> None:
    advice = share_advice(log)
    assert advice.setting == f"--gpu-memory-utilization {setting}"
    assert reason in advice.reason
    assert frees is None or advice.frees_bytes == frees


def test_size_of_the_card_is_taken_from_another_message() -> None:
    log = f"{SHARE}{oom_line(0)}\n\n{TOO_LITTLE}"
    assert share_advice(log).setting == "--gpu-memory-utilization 0.93"
    unequal = f"{SHARE}{oom_line(0)}\n{oom_line(1).replace('80.00 GiB', '40.00 GiB')}\n{TOO_LITTLE}"
    assert "a share of the card: add" in share_advice(unequal).reason


@pytest.mark.parametrize("log", [TOO_LITTLE, SHARE + TOO_LITTLE, CARD + TOO_LITTLE])
def test_no_share_is_told_in_bytes_alone(log: str) -> None:
    advice = share_advice(log)
    assert "GiB" not in advice.setting
    assert "share of the card" in advice.reason


@pytest.mark.parametrize("error", [TOO_LITTLE, TOKENS, NO_BLOCKS])
@pytest.mark.parametrize("share", ["0.98", "0.99", "1.0"])
def test_nothing_is_to_be_had_above_the_highest_share(error: str, share: str) -> None:
    assert not shares_in(SHARE.replace("0.9", share) + error)
    assert shares_in(SHARE.replace("0.9", "0.97") + error)


def test_no_share_is_lowered_by_more_than_the_card() -> None:
    log = oom_line(0).replace("80.00 GiB", "-1 GiB")  # of a card of unknown size
    assert shares_in(f"vllm serve m\n{CARD}{log}")
    assert not shares_in(f"vllm serve m\n{CARD.replace('80.00', '0.01')}{log}")


@pytest.mark.parametrize(
    ("free", "wanted", "settings"),
    [
        (59.32, 71.24, ["--gpu-memory-utilization 0.74"]),
        (0.5, 71.24, []),
        (90.0, 95.0, []),
        (59.32, 142.48, []),
    ],
    ids=["fits", "nothing free", "free beyond the card", "wanted beyond the card"],
)
def test_a_share_of_what_is_free_is_one(free: float, wanted: float, settings: list[str]) -> None:
    log = (
        f"ValueError: Free memory on device ({free}/79.15 GiB) on startup is less than desired "
        f"GPU memory utilization (0.9, {wanted} GiB)."
    )
    assert shares_in(log) == settings


def shares_in(log: str) -> list[str]:
    return [each.setting for each in explain(log).help if "utilization" in each.setting]


def test_card_of_unknown_size_is_promised_no_bytes() -> None:
    for log in (TOO_LITTLE, SHARE + TOO_LITTLE):
        assert share_advice(log).frees_bytes is None


@pytest.mark.parametrize(
    ("weights", "frees", "reason"),
    [
        (
            "Model loading took 15.00 GiB and 22.3 seconds\n",
            15.5,
            "weights and KV cache on each; en",
        ),
        ("Model loading took 3.00 GiB and 22.3 seconds\n", 9.5, "on each; not enough alone"),
        ("", 8.0, "twice the cards, half on each"),
    ],
)
def test_twice_the_cards_halve_the_weights_too(weights: str, frees: float, reason: str) -> None:
    log = f"{weights}{TOO_LITTLE}".replace("10.00 GiB", "16.00 GiB").replace("(8.00", "(4.00")
    (advice,) = [each for each in explain(log).help if "--tensor-parallel" in each.setting]
    assert advice.frees_bytes == frees * GIB
    assert reason in advice.reason


def test_share_to_lower_is_a_share_too() -> None:
    log = f"vllm serve m\n{oom_line(0)}"
    assert share_advice(log).setting == "--gpu-memory-utilization lower by 0.02"
    assert "a share of the card's 80.00 GiB" in share_advice(log).reason
