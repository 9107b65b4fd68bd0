"""Compiling beforehand: every kind goes through all steps, and an unknown one is refused."""

import pytest

from pbodl import _jit
from pbodl.commands import warmup_command
from pbodl.commands.warmup_command import STEPS, compile_steps
from tests.command_line import run_pbodl


@pytest.mark.parametrize("kind", ["pair-fm", "ftrl"])
def test_a_model_is_used_in_every_way(kind):
    assert tuple(compile_steps(kind)) == STEPS


def test_the_command_takes_kinds_and_refuses_unknown_ones():
    assert run_pbodl("warmup", "adpredictor").code == 0
    refused = run_pbodl("warmup", "pear-fm")
    assert refused.code == 2 and "kinds are: " in refused.prose and "pair-fm" in refused.prose


def test_a_wait_for_the_compiler_is_announced_once(monkeypatch):
    said = []
    monkeypatch.setattr(warmup_command.console, "print", lambda text, **options: said.append(text))
    monkeypatch.setattr(_jit, "compiled_before", lambda: False)
    monkeypatch.setattr(_jit, "_told", [])
    warmup_command.tell_if_compiling()
    assert len(said) == 1 and "compiles once" in said[0]
    warmup_command.tell_if_compiling()
    assert len(said) == 1
    _jit._told.clear()
    monkeypatch.setattr(_jit, "compiled_before", lambda: True)
    warmup_command.tell_if_compiling()
    assert len(said) == 1
