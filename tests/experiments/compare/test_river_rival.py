"""River's adapters."""

import pytest

from tests.experiments.compare.rivals import check_rival

pytest.importorskip("river")


@pytest.mark.parametrize("slug", ["river", "river-ftrl"])
def test_river(slug):
    check_rival(slug)
