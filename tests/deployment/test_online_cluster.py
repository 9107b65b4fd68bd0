"""The manifests of a stream on Kubernetes: published schemas, what must fit together, and commands that exist.

The core kinds, and the pods inside the RayJob, are checked against the schemas in `kubernetes-validate`. The fields of the
RayJob itself are compared with those that KubeRay documents for ray.io/v1.
"""

import itertools
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from pbodl.cli import app
from pbodl.serving.models.parts_follower import RowShare
from pbodl.serving.sharing.share_client import ShareClient

MANIFESTS = Path(__file__).parents[2] / "docs" / "guide" / "online-cluster.yaml"
LOCK = Path(__file__).parents[2] / "requirements.lock"
JOB = {"entrypoint", "submissionMode", "backoffLimit", "rayClusterSpec"}


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    found = list(yaml.safe_load_all(MANIFESTS.read_text()))
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


def pods() -> dict[str, dict[str, Any]]:
    """All templates of pods."""
    named = {
        f"{kind} {name}": one["spec"]["template"]
        for (kind, name), one in manifests().items()
        if kind in ("Deployment", "StatefulSet")
    }
    cluster = manifests()["RayJob", "pbodl-online"]["spec"]["rayClusterSpec"]
    return named | {
        f"ray {n}": group["template"] for n, group in enumerate((cluster["headGroupSpec"], *cluster["workerGroupSpecs"]))
    }


def options_of(command: str) -> set[str]:
    found = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    return {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}


def commands() -> list[list[str]]:
    """All calls of `pbodl` in the manifests."""
    told = [manifests()["RayJob", "pbodl-online"]["spec"]["entrypoint"]]
    for pod in pods().values():
        (container,) = pod["spec"]["containers"]
        words = [*container.get("command", []), *container.get("args", [])]
        told += [words[-1].removeprefix("exec ")] if words[:2] == ["bash", "-c"] else [shlex.join(words)]
    return [words for words in map(shlex.split, told) if words[:1] == ["pbodl"]]


@pytest.mark.parametrize("release", ["1.31", "latest"])
def test_the_published_schemas_accept_them(release: str):
    wanted = kubernetes_validate.latest_version() if release == "latest" else release
    validate = partial(kubernetes_validate.validate, desired_version=wanted, strict=True)
    for (kind, _), one in manifests().items():
        if kind != "RayJob":
            validate(one)
    for name, template in pods().items():
        labels = template["metadata"]["labels"]
        spec = {"selector": {"matchLabels": labels}, "template": template}
        validate({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
    broken = manifests()["Deployment", "router"]
    broken["spec"]["template"]["spec"]["containers"][0]["port"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="port"):
        validate(broken)


def test_the_job_has_documented_fields():
    job = manifests()["RayJob", "pbodl-online"]
    assert job["apiVersion"] == "ray.io/v1" and set(job["spec"]) == JOB
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert f"ray=={cluster['rayVersion']}" in LOCK.read_text()
    for group in cluster["workerGroupSpecs"]:
        assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def test_commands_exist_with_these_options():
    seen = set()
    for _, command, *words in commands():
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= options_of(command), (command, given - options_of(command))
        seen.add(command)
    assert seen == {"online", "serve", "route"}


def test_shares_router_and_services_fit_together():
    named = manifests()
    count = named["StatefulSet", "shares"]["spec"]["replicas"]
    (share,) = [words for words in commands() if words[1] == "serve"]
    (router,) = [words for words in commands() if words[1] == "route"]
    told = share[share.index("--shard") + 1]
    assert [RowShare.parse(told.replace("${HOSTNAME##*-}", str(n))) for n in range(count)] == [
        RowShare(n, count) for n in range(count)
    ]
    urls = [word for before, word in itertools.pairwise(router) if before == "--shard"]
    assert urls == [f"http://shares-{n}.{named['Service', 'shares']['metadata']['name']}:8080" for n in range(count)]
    assert [ShareClient(url).url for url in urls] == urls
    for (kind, name), one in named.items():
        if kind in ("Deployment", "StatefulSet"):
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
            service = named["Service", one["spec"].get("serviceName", name)]
            assert service["spec"]["selector"].items() <= labels.items()
            (container,) = one["spec"]["template"]["spec"]["containers"]
            open_ports = {port["containerPort"] for port in container["ports"]}
            assert {port["port"] for port in service["spec"]["ports"]} <= open_ports
    assert re.search(r"kafka://kafka:9092/", named["RayJob", "pbodl-online"]["spec"]["entrypoint"])


def test_volumes_and_mounts_fit_together():
    claims = {name for kind, name in manifests() if kind == "PersistentVolumeClaim"}
    for name, pod in pods().items():
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        if name == "StatefulSet kafka":
            volumes |= {"data": {}}
        (container,) = pod["spec"]["containers"]
        assert {mount["name"] for mount in container.get("volumeMounts", [])} == set(volumes)
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
