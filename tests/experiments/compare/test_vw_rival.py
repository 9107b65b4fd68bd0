"""Vowpal Wabbit's adapters."""

import pytest

from tests.experiments.compare.rivals import check_rival

pytest.importorskip("vowpalwabbit")


@pytest.mark.parametrize("slug", ["vw", "vw-pairs"])
def test_vowpal_wabbit(slug):
    check_rival(slug)
