"""What a model may be made of, and how a mistake in it is put."""

from typing import Any

import msgspec
import pytest

import pbodl
from pbodl.errors import InputError
from pbodl.models.spec import DeepSpec, FieldPrior, Prior
from tests.click_log import PLAIN, RICH

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"dim": 0}, "dim is 0; it must be a whole number from 1 to 4096"),
    ({"dim": -3}, "dim is -3"),
    ({"dim": 2.0}, "dim is 2.0; it must be a whole number"),
    ({"dim": True}, "dim is True"),
    ({"dim": "16"}, "dim is '16'"),
    ({"hidden": (8,) * 6}, "hidden has 6 layers; it must have 0 to 5"),
    ({"hidden": (8, 0)}, "a hidden layer's size is 0"),
    ({"hidden": (8.5,)}, "a hidden layer's size is 8.5"),
    ({"hidden": 64}, "hidden is 64; it must be a list of layer sizes, such as (64, 32), or () for none"),
    ({"hidden": "64"}, "a hidden layer's size is '6'"),
    ({"fm_variance": "printed"}, "fm_variance is 'printed'; it must be 'slopes' or 'exact' or 'paper'"),
    ({"initial_spread": -0.1}, "initial_spread is -0.1; it must be a number from 0 to 10"),
    ({"initial_spread": float("nan")}, "initial_spread is nan"),
    ({"initial_spread": "small"}, "initial_spread is 'small'"),
    ({"step_cap": 0.0}, "step_cap is 0.0; it must be a number above 0"),
    ({"step_cap": float("nan")}, "step_cap is nan"),
    ({"step_cap": "none"}, "step_cap is 'none'"),
    ({"capacity": 0}, "capacity is 0; it must be a whole number from 1"),
    ({"capacity": 1e6}, "capacity is 1000000.0; it must be a whole number"),
    ({"negative_rate": 0.0}, "negative_rate is 0.0; it must be above 0 and at most 1"),
    ({"negative_rate": 1.5}, "negative_rate is 1.5"),
    ({"negative_rate": float("nan")}, "negative_rate is nan"),
    ({"negative_rate": "auto"}, "negative_rate is 'auto'"),
    ({"seed": -1}, "seed is -1; it must be a whole number from 0"),
    ({"seed": 0.5}, "seed is 0.5"),
    ({"prior": {"embedding": 0.1}}, "prior is {'embedding': 0.1}; it must be a pbodl.Prior(embedding=..., linear=..., dense=..., "),
    ({"half_life": "a week"}, "half_life is 'a week'; it must be a span of time or rows, such as '7d'"),
    ({"half_life": 3600}, "half_life is 3600"),
    ({"half_life": "0d"}, "half_life is '0d'"),
    ({"time_to_live": "-3d"}, "time_to_live is '-3d'"),
    ({"half_life": "7d"}, "half_life in time needs the schema's time column"),
    ({"time_to_live": "7d", "half_life": "3d"}, "half_life and time_to_live in time needs the schema's time column"),
]


@pytest.mark.parametrize(("options", "words"), MISTAKES, ids=lambda value: str(value)[:30])
def test_mistakes_are_put_in_prose(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        pbodl.FMMLP(PLAIN, **options)
    assert words in str(caught.value)


def test_times_and_rows_do_not_mix() -> None:
    with pytest.raises(InputError, match="half_life '7d' and time_to_live '1M rows' must both be given in time, or both in rows"):
        pbodl.FMMLP(RICH, half_life="7d", time_to_live="1M rows")


@pytest.mark.parametrize("variance", [0.0, -0.1, 1e7, float("nan"), float("inf"), "0.1", True])
def test_prior_variances_are_positive_and_bounded(variance: Any) -> None:
    for part in ("embedding", "linear", "dense"):
        with pytest.raises(InputError, match=f"the prior variance of {part} is"):
            Prior(**{part: variance})
    with pytest.raises(InputError, match="the prior variance of field 'ad' linear is"):
        Prior(fields={"ad": FieldPrior(linear=variance)})


@pytest.mark.parametrize("variance", [1e-12, 1e5])
def test_a_prior_at_either_end_still_learns(variance: float) -> None:
    model = pbodl.SparseMLP(PLAIN, dim=2, hidden=(3,), prior=Prior(variance, variance, variance))
    model.learn([{"user": i % 3, "ad": i % 2, "site": 0, "click": i % 2} for i in range(20)])
    assert [model.metrics()[f"rejected_{part}"] for part in ("embedding", "linear", "dense")] == [0, 0, 0]


def test_a_fields_prior_is_written_as_one() -> None:
    with pytest.raises(InputError, match=r"the prior of field 'ad' is 0\.5; it must be a pbodl\.FieldPrior"):
        Prior(fields={"ad": 0.5})  # type: ignore[dict-item]


def test_a_fields_prior_falls_back_to_the_models() -> None:
    prior = Prior(embedding=0.3, linear=0.2, fields={"ad": FieldPrior(linear=0.5)})
    assert prior.of_field("ad", "linear") == 0.5
    assert prior.of_field("ad", "embedding") == 0.3
    assert prior.of_field("user", "linear") == 0.2


@pytest.mark.parametrize(
    "spec",
    [
        DeepSpec(),
        DeepSpec(hidden=()),
        DeepSpec(
            dim=4,
            hidden=(8,),
            half_life="7d",
            capacity=1000,
            seed=2**62,
            prior=Prior(fields={"ad": FieldPrior(linear=0.5)}),
        ),
    ],
)
def test_specs_go_through_json(spec: DeepSpec) -> None:
    assert msgspec.json.decode(msgspec.json.encode(spec), type=DeepSpec) == spec


def test_a_spec_refuses_unknown_names() -> None:
    with pytest.raises(msgspec.ValidationError, match="dimension"):
        msgspec.convert({"dimension": 16}, DeepSpec)


def test_layer_sizes_may_come_in_any_list() -> None:
    assert pbodl.FMMLP(PLAIN, hidden=[64, 32]).spec == pbodl.FMMLP(PLAIN, hidden=iter((64, 32))).spec
    assert pbodl.FMMLP(PLAIN, hidden=[64, 32]).spec.hidden == DeepSpec().hidden


def test_the_embeddings_prior_goes_by_the_number_of_fields() -> None:
    def schema(n: int) -> pbodl.Schema:
        return pbodl.Schema(label="click", fields=[pbodl.Field(f"f{i}") for i in range(n)])

    for model in (pbodl.SparseMLP, pbodl.FMMLP, pbodl.FFMMLP):
        assert model(schema(3)).spec.prior.embedding > model(schema(20)).spec.prior.embedding
    assert pbodl.FMMLP(schema(3), prior=pbodl.Prior(embedding=0.07)).spec.prior.embedding == 0.07


def test_a_spec_is_frozen() -> None:
    with pytest.raises(AttributeError):
        DeepSpec().dim = 3  # type: ignore[misc]
