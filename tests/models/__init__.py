"""Tests of the models; the battery's failures show their values, as those of test files do."""

import pytest

pytest.register_assert_rewrite("tests.contract")
