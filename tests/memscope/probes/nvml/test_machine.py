"""This machine now: whatever the driver refuses, every byte has a line and every gap a reason."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memscope.analysis.ledger.machine import CardBalance, balance_machine, machine_json
from memscope.cli.text.machine import format_age, machine_lines
from memscope.probes.nvml.machine import MachineReading, read_machine
from memscope.probes.process_table import ProcessEntry, container_of, read_process
from tests.memscope.probes.nvml.fake_machines import MIB, NOT_AVAILABLE, FakeCard, FakeMachine

ME = os.getpid()
R535_BAD = {7: 1 << 60, NOT_AVAILABLE: 600 * MIB}
MACHINES = {
    "modern": FakeMachine(FakeCard(processes={ME: 600 * MIB})),
    "R430": FakeMachine(FakeCard(failing={"version 2": "FunctionNotFound"})),
    "R510 idle": FakeMachine(FakeCard(used=0, reserved=308 * MIB)),
    "R535 misread": FakeMachine(FakeCard(processes=R535_BAD)),
    "WSL": FakeMachine(FakeCard(processes={ME: None})),
    "WSL sentinel": FakeMachine(FakeCard(processes={ME: NOT_AVAILABLE})),
    "container": FakeMachine(FakeCard(processes={})),
    "other namespace": FakeMachine(FakeCard(processes={1 << 22: 600 * MIB})),
    "no permission": FakeMachine(FakeCard(failing={"processes": "NoPermission"})),
    "MIG": FakeMachine(
        FakeCard(
            failing={"memory": "NoPermission"},
            instances=(
                FakeCard(total=500 * MIB, used=100 * MIB),
                FakeCard(total=500 * MIB, used=0),
            ),
        )
    ),
    "MIG refused": FakeMachine(
        FakeCard(failing={"memory": "NoPermission", "processes": "NoPermission"})
    ),
    "GB10": FakeMachine(FakeCard(failing={"memory": "NotSupported"})),
    "GB10 says zero": FakeMachine(FakeCard(total=0, used=0, reserved=0)),
    "one lost": FakeMachine(FakeCard(failing={"handle": "GpuIsLost"}), FakeCard()),
    "shared memory": FakeMachine(FakeCard(processes={ME: 400 * MIB, 1: 400 * MIB})),
}


def read(machine: FakeMachine) -> tuple[MachineReading, tuple[CardBalance, ...]]:
    reading = read_machine(machine)
    return reading, balance_machine(reading)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_lines_add_up_and_gaps_have_reasons(machine: FakeMachine) -> None:
    reading, balances = read(machine)
    assert balances
    for balance in balances:
        sizes = [holding.bytes for holding in balance.holdings if holding.bytes is not None]
        assert balance.card.total_bytes is None or sum(sizes) == balance.card.total_bytes
        for holding in balance.holdings:
            assert holding.bytes is not None or holding.reason
    assert machine_json(reading)["cards"]
    text = "\n".join(machine_lines(reading))
    assert "healthy" not in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DriverNotLoaded", "modprobe nvidia"),
        ("LibraryNotFound", "Install the NVIDIA driver"),
        ("LibRmVersionMismatch", "different versions"),
        ("Unknown", "daemon-reload"),
    ],
)
def test_nvml_that_does_not_start_says_why(name: str, words: str) -> None:
    lines = machine_lines(read_machine(FakeMachine(init_error=name)))
    assert words in lines[1]


def lines_of(name: str) -> str:
    return "\n".join(machine_lines(read(MACHINES[name])[0]))


def unowned(name: str) -> tuple[int | None, str | None]:
    holdings = read(MACHINES[name])[1][0].holdings
    return next((h.bytes, h.reason) for h in holdings if h.label == "no visible process")


def test_idle_card_is_not_called_used() -> None:
    labels = {h.label: h.bytes for h in read(MACHINES["R510 idle"])[1][0].holdings}
    assert labels == {"free": 692 * MIB, "driver-reserved": 308 * MIB}


def test_old_driver_counts_its_own_part_as_used() -> None:
    size, reason = unowned("R430")
    assert size == 700 * MIB
    assert reason is not None
    assert "includes the driver's own memory" in reason


def test_memory_without_owner_has_a_line_and_a_reason() -> None:
    assert unowned("modern")[0] == 50 * MIB
    size, reason = unowned("container")
    assert size == 650 * MIB
    assert reason is not None
    assert "visible" in reason or "hidden" in reason


@pytest.mark.parametrize("name", ["WSL", "WSL sentinel", "R535 misread"])
def test_amounts_that_cannot_be_are_not_shown(name: str) -> None:
    text = lines_of(name)
    assert "not measured" in text
    assert "PiB" not in text
    assert "EiB" not in text


def test_process_of_another_namespace_keeps_its_bytes() -> None:
    reading, (balance,) = read(MACHINES["other namespace"])
    holding = next(holding for holding in balance.holdings if holding.pid)
    assert holding.bytes == 600 * MIB
    assert holding.reason is not None
    assert "not visible here" in holding.reason
    assert not reading.entries


def test_instances_of_mig_are_cards_of_their_own() -> None:
    assert [balance.card.index for balance in read(MACHINES["MIG"])[1]] == ["0:0", "0:1"]


def test_lost_card_leaves_the_others() -> None:
    lost, other = read(MACHINES["one lost"])[1]
    assert "fallen off the bus" in (lost.holdings[0].reason or "")
    assert other.card.total_bytes == 1000 * MIB


def test_own_process_is_described() -> None:
    entry = read_process(ME)
    assert isinstance(entry, ProcessEntry)
    assert entry.user
    assert entry.command is not None
    assert "py" in entry.command
    assert entry.age_s is not None
    assert 0 <= entry.age_s < 86400
    assert not entry.is_orphan


def test_orphan_is_named() -> None:
    """A child whose parent was killed, as servers leave them."""
    child = "import time; print('up', flush=True); time.sleep(120)"
    parent = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", parent]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    pid = int(run.stdout)
    try:
        until = time.monotonic() + 60
        while not read_process(pid).is_orphan and time.monotonic() < until:
            time.sleep(0.05)
        machine = FakeMachine(FakeCard(processes={pid: 600 * MIB}))
        assert f"process {pid}: its parent is gone" in "\n".join(
            machine_lines(read_machine(machine))
        )
    finally:
        os.kill(pid, 9)


def test_hostile_command_cannot_steer_the_terminal(tmp_path: Path) -> None:
    shown = "x\x1b[2J"
    code = "import time; print('up', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, shown], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            machine = FakeMachine(FakeCard(processes={process.pid: 600 * MIB}))
            assert "\x1b" not in "\n".join(machine_lines(read_machine(machine)))
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{'ab' * 32}.scope", "ab" * 6),
        (f"12:memory:/docker/{'cd' * 32}", "cd" * 6),
        (f"0::/kubepods.slice/pod1/cri-containerd-{'ef' * 32}.scope", "ef" * 6),
        ("0::/user.slice/user-1000.slice/session-2.scope", None),
        ("", None),
    ],
)
def test_container_by_control_group(cgroup: str, container: str | None) -> None:
    assert container_of(cgroup) == container


def test_ages() -> None:
    assert [format_age(s) for s in (5, 65, 3900, 90000)] == [
        "5 s",
        "1 min",
        "1 h 05 min",
        "1 d 01 h",
    ]
