"""The folder that `pbodl deploy` writes: images, compose file, Kubernetes manifests, alerts, dashboard, and the model."""

import math
import re
import string
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pbodl._pinned import CPUS, PINNED
from pbodl.deployment.package_wheel import package_wheel, requirements
from pbodl.errors import InputError
from pbodl.models.contract import Model
from pbodl.models.deep_probit import DeepProbit
from pbodl.models.snapshot import load, save
from pbodl.system.atomic_files import replacing, write_synced
from pbodl.training.config import FROM_TRAINING, Config, TrainingSpec, check_config, read_config, to_toml

TEMPLATES, WATCHING = (Path(__file__).parent / name for name in ("templates", "watching"))
PLACES = {
    "compose.yaml": "compose.yaml",
    "kubernetes.yaml": "kubernetes.yaml",
    "trainer.Dockerfile": "trainer.Dockerfile",
    "server.Dockerfile": "server.Dockerfile",
    "README.md": "README.md",
    "prometheus.yml": "prometheus/prometheus.yml",
    "grafana-source.yml": "grafana/provisioning/datasources/prometheus.yml",
    "grafana-boards.yml": "grafana/provisioning/dashboards/pbodl.yml",
}
WATCHED = {"rules.yml": "prometheus/rules.yml", "dashboard.json": "grafana/boards/dashboard.json"}
SOURCE = "redis://broker:6379/clicks"
EXTRAS = {"trainer": {"serve", "redis"}, "server": {"serve"}}
IMAGE = re.compile(r"[a-z0-9]+([._/:-][a-z0-9]+)*")
LEAST_GIGABYTES = 2
IMAGE_NAME = "pbodl"


class DeployOptions(NamedTuple):
    """What may differ from one deployment to another.

    image  name of the images, without `-trainer` and `-server`; with the registry that they are pushed to
    cpu    processor to compile the kernels for: x86-64-v3, the same bits everywhere, or native, that of the building machine
    """

    image: str = IMAGE_NAME
    cpu: str = PINNED


class _Text(string.Template):
    delimiter = "@"  # a dollar is the shell's, and Prometheus's


def deploy(run: str | Path, out: str | Path, options: DeployOptions) -> list[str]:
    """Write the folder `out`, which must not exist; returns the names of its files."""
    _check(options)
    folder, model = Path(out), load(run)
    if folder.exists():
        raise InputError(f"{folder} exists; choose another --out, or remove it")
    if not isinstance(model, DeepProbit):
        raise InputError(
            f"the model is {model.kind!r}, which cannot learn from a stream; deploy one of the deep probit models, such as "
            "pair-fm, or serve this one alone with `pbodl serve`"
        )
    config = config_of(model, Path(run) / "config.toml")
    wheel, packed = package_wheel()
    values = _values(model, wheel, options)
    texts = {place: _Text((TEMPLATES / name).read_text(encoding="utf-8")).substitute(values) for name, place in PLACES.items()}
    texts |= {place: (WATCHING / name).read_text(encoding="utf-8") for name, place in WATCHED.items()}
    texts |= {f"packages/{image}.txt": requirements(extras) for image, extras in EXTRAS.items()}
    texts |= {"model/config.toml": to_toml(config), ".dockerignore": "*\n!model\n!packages\nmodel/.lock\n"}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as beside:
        for place, text in texts.items():
            (beside / place).parent.mkdir(parents=True, exist_ok=True)
            write_synced(beside / place, text.encode())
        write_synced(beside / "packages" / wheel, packed)
        save(model, beside / "model")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def config_of(model: Model, written: Path) -> Config:
    """The configuration of a trained model, with the [training] table of its run where there is one."""
    training = check_config(read_config(written)).training if written.is_file() else TrainingSpec()
    spec: dict[str, Any] = msgspec.to_builtins(model.spec)
    given = {name: spec.pop(name) for name in FROM_TRAINING if name in spec}
    training = msgspec.structs.replace(training, **given)
    return Config(model.schema, model.kind, {name: value for name, value in spec.items() if value is not None}, training)


def _check(options: DeployOptions) -> None:
    if not IMAGE.fullmatch(options.image):
        raise InputError(f"--image is {options.image!r}; it must be the name of an image, such as registry.example/ads/pbodl")
    if options.cpu not in CPUS:
        raise InputError(f"--cpu is {options.cpu!r}; it may be {' or '.join(CPUS)}")


def _values(model: Model, wheel: str, options: DeployOptions) -> dict[str, str]:
    size = sum(array.nbytes for array in model.state().values())
    return {
        "cpu": "" if options.cpu == PINNED else f" PBODL_CPU={options.cpu}",
        "image": options.image,
        "kind": model.kind,
        # Twice the model, for the new version beside the old one, and as much again for a table that has grown.
        "memory": str(max(LEAST_GIGABYTES, math.ceil(4 * size / 2**30) + 1)),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "rows": f"{model.rows_learned:,}",
        "source": SOURCE,
        "version": wheel.split("-")[1].replace("+", "-"),
        "wheel": wheel,
    }
