"""Every model against the battery of `tests/contract.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pbodl
from pbodl import _jit
from pbodl.models.contract import Model
from tests.baselines.factories import BASELINES
from tests.click_log import PLAIN
from tests.contract import FACTORIES, OPT_OUTS, PROPERTIES, Factory, fingerprint, trained

ROOT = Path(__file__).parents[2]
NAMES = [check.__name__ for check in PROPERTIES]
# Plain Python is slow: these say most about the kernels, on few rows.
IN_PLAIN_PYTHON = {
    "a_batch_is_learned_as_its_rows_one_by_one",
    "a_restored_model_goes_on_bit_for_bit",
    "predict_changes_nothing",
}
BATTERY = [
    pytest.param(check, id=check.__name__, marks=[pytest.mark.nojit] * (check.__name__ in IN_PLAIN_PYTHON)) for check in PROPERTIES
]


@pytest.mark.parametrize("check", BATTERY)
@pytest.mark.parametrize("kind", FACTORIES)
def test_property(kind: str, check) -> None:
    if (kind, check.__name__) in OPT_OUTS:
        pytest.skip(OPT_OUTS[kind, check.__name__])
    check(FACTORIES[kind])


def test_every_model_is_in_the_battery() -> None:
    ours = {kind for kind, model in Model.kinds.items() if model.__module__.startswith("pbodl.")}
    factories: dict[str, Factory] = {**FACTORIES, **BASELINES}
    assert ours == set(factories), "give each of these a factory in tests/contract.py or tests/baselines/factories.py"
    for kind, make in factories.items():
        assert type(make(PLAIN)) is Model.kinds[kind]


def test_opt_outs_are_named_and_argued() -> None:
    for (kind, name), reason in OPT_OUTS.items():
        assert kind in FACTORIES
        assert name in NAMES
        assert len(reason.split()) > 3, f"{kind}, {name}: say why"


def test_another_process_learns_the_same_bits() -> None:
    program = (
        "import json; from tests.contract import FACTORIES, fingerprint, trained;"
        "print(json.dumps({kind: fingerprint(trained(make).state()) for kind, make in FACTORIES.items()}))"
    )
    # Python's own hash differs from process to process: nothing may depend on it.
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    ref = {kind: fingerprint(trained(make).state()) for kind, make in FACTORIES.items()}
    assert json.loads(done.stdout.splitlines()[-1]) == ref


def test_python_users_hear_once_that_it_compiles(monkeypatch, capsys):
    monkeypatch.setattr(_jit, "_told", [])
    monkeypatch.setattr(_jit, "compiled_before", lambda: False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    model = pbodl.AdPredictor(pbodl.Schema(label="click", fields=[pbodl.Field("ad")]))
    for _ in range(2):
        model.learn({"ad": "a", "click": 1})
    assert capsys.readouterr().err.count("compiles once") == 1
