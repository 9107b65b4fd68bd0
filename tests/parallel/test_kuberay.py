"""The manifest for Kubernetes: its form, without a cluster. Fields and types are those that KubeRay documents for ray.io/v1."""

import shlex
from pathlib import Path

import typer
import yaml

from pbodl.cli import app

MANIFEST = Path(__file__).parents[2] / "docs" / "guide" / "kuberay.yaml"
LOCK = Path(__file__).parents[2] / "requirements.lock"
JOB = {"entrypoint": str, "submissionMode": str, "shutdownAfterJobFinishes": bool, "rayClusterSpec": dict}
CLUSTER = {"rayVersion": str, "authOptions": dict, "headGroupSpec": dict, "workerGroupSpecs": list}
HEAD = {"serviceType": str, "rayStartParams": dict, "template": dict}
WORKERS = {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "rayStartParams": dict, "template": dict}
CONTAINER = {"name": str, "image": str, "env": list, "resources": dict, "volumeMounts": list}


def assert_fields(given: dict, documented: dict[str, type]) -> None:
    assert {name: type(value) for name, value in given.items()} == documented


def manifest() -> tuple[dict, dict]:
    claim, job = yaml.safe_load_all(MANIFEST.read_text())
    return claim, job


def test_fields_are_those_of_the_resources():
    _, job = manifest()
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert_fields(job["spec"], JOB)
    assert job["spec"]["submissionMode"] in ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
    cluster = job["spec"]["rayClusterSpec"]
    assert_fields(cluster, CLUSTER)
    assert cluster["authOptions"] == {"mode": "token"}
    assert_fields(cluster["headGroupSpec"], HEAD)
    for group in cluster["workerGroupSpecs"]:
        assert_fields(group, WORKERS)
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_pods_fit_together():
    claim, job = manifest()
    cluster = job["spec"]["rayClusterSpec"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    images = set()
    for pod in pods:
        assert set(pod) == {"containers", "volumes"}
        volumes = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert_fields(container, CONTAINER)
        assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {"shared": "/shared"}
        assert volumes == {"shared": claim["metadata"]["name"]}
        assert set(container["resources"]) == {"requests", "limits"}
        assert all(isinstance(entry["value"], str) for entry in container["env"])
        images.add(container["image"])
    assert len(images) == 1 and claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert f"ray=={cluster['rayVersion']}" in LOCK.read_text().splitlines()


def test_the_command_is_one_that_the_command_line_takes():
    _, job = manifest()
    program, command, *arguments = shlex.split(job["spec"]["entrypoint"])
    parser = typer.main.get_command(app).commands[command]
    options = parser.make_context(command, arguments).params
    assert (program, options["engine"], options["address"]) == ("pbodl", "ray", "auto")
    paths = (*options["data"], options["config"], options["out"])
    assert all(str(path).startswith("/shared/") for path in paths)
    assert options["workers"] > 1 and options["shards"] > 1
