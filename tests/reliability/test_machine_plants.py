"""The machines are tested too: each planted bug is caught by a machine within its usual counts."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.reliability.machines import Counts, Machine, hunt
from tests.reliability.plants import Patch, Plant, effects, runs, stores
from tests.reliability.report import LEDGER
from tests.reliability.test_machine_effects import EffectMachine
from tests.reliability.test_machine_thread import ThreadMachine

CAUGHT: list[tuple[type[Machine], Plant]] = [
    (ThreadMachine, stores.no_position_check),
    (ThreadMachine, stores.check_then_act),
    (ThreadMachine, stores.no_fence),
    (ThreadMachine, runs.ended_twice),
    (ThreadMachine, runs.status_from_two_reads),
    (EffectMachine, effects.perform_in_recovery),
    (EffectMachine, effects.perform_before_the_intent),
    (EffectMachine, effects.fork_performs),
    (EffectMachine, effects.submit_is_not_checked_again),
]


@pytest.mark.parametrize(
    ("machine", "plant"), CAUGHT, ids=[f"{plant.rule} {plant.name}" for _, plant in CAUGHT]
)
def test_is_caught(machine: type[Machine], plant: Plant, monkeypatch: Patch) -> None:
    """A planted bug breaks a rule of a machine."""
    plant.plant(monkeypatch)
    begun: list[Machine] = []

    def __init__(self: Machine) -> None:
        begun.append(self)
        machine.__init__(self)

    hunted = type(machine.__name__, (machine,), {"__init__": __init__})
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(hunted, settings=hunt(Counts(100)))
    LEDGER.planted(plant.bug, machine.__name__, len(begun))
