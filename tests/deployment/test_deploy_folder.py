"""`pbodl deploy`: schemas of compose and of the Kubernetes API, hadolint, and our own commands judge what it writes."""

import importlib.resources
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import typer
import yaml

import pbodl
from pbodl.cli import app
from pbodl.deployment.deploy_folder import DeployOptions, config_of, deploy
from pbodl.errors import InputError
from pbodl.models.snapshot import load
from pbodl.streaming.online_service import Options, online
from pbodl.streaming.stream_learner import StreamOptions
from pbodl.training.config import check_config, read_config, to_tables, to_toml
from tests.command_line import run_pbodl
from tests.streaming.traffic import config, fingerprint

IMAGES = ("trainer", "server")
ROWS = [{"time": float(n), "user": n % 7, "ad": n % 5, "click": int(n % 5 == n % 7)} for n in range(400)]
JOIN = StreamOptions("5m", "20m", 5000)
OURS = {"broker", "trainer", "server", "prometheus", "grafana"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    model = config().build()
    model.learn(ROWS[:200])
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def deployed(run, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("deployed") / "new" / "deploy"
    files = deploy(run, out, DeployOptions(image="registry.example:5000/ads/pbodl", cpu="native"))
    assert files == sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    return out


def compose(folder: Path) -> dict:
    return yaml.safe_load((folder / "compose.yaml").read_text())


def manifests(folder: Path) -> list[dict]:
    return list(yaml.safe_load_all((folder / "kubernetes.yaml").read_text()))


def pods(folder: Path) -> dict[str, dict]:
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in manifests(folder) if "template" in one.get("spec", {})
    }


def command_of(dockerfile: Path) -> list[str]:
    text = dockerfile.read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^CMD (\[.*\])$", text, flags=re.MULTILINE)
    return json.loads(command)


def parsed(words: list[str]) -> dict:
    """The options of a command, as the command line understands them."""
    program, name, *arguments = words
    assert program == "pbodl"
    return typer.main.get_command(app).commands[name].make_context(name, list(arguments)).params


def test_nothing_is_left_to_fill_in(deployed):
    for path in deployed.rglob("*"):
        if path.is_file() and path.suffix not in (".whl", ".safetensors"):
            assert "@{" not in path.read_text(), path


@pytest.mark.parametrize("image", IMAGES)
def test_dockerfiles_please_the_linter(deployed, image):
    linter = shutil.which("hadolint") or str(Path(sys.executable).parent / "hadolint")
    done = subprocess.run([linter, str(deployed / f"{image}.Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    bad = subprocess.run([linter, "-"], input="FROM debian\nRUN cd /x\n", capture_output=True, text=True)
    assert bad.returncode != 0  # it does judge


@pytest.mark.parametrize("image", IMAGES)
def test_images_have_what_they_need(deployed, image):
    text = (deployed / f"{image}.Dockerfile").read_text()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"FROM python:{python}-slim\n" in text and " PBODL_CPU=native\n" in text
    assert text.index("USER 10001") < text.index("RUN pbodl warmup fm-mlp") < text.index('CMD ["pbodl"')
    copied = re.findall(r"^COPY (?:--\S+ )?(\S+) ", text, flags=re.MULTILINE)
    assert all((deployed / name).is_dir() for name in copied)
    ignored = (deployed / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*" and {f"!{name}" for name in copied} <= set(ignored)
    for name in re.findall(r"/packages/(\S+)", text):
        assert (deployed / "packages" / name).is_file()
    health = re.search(r"HEALTHCHECK .*\\\n\s+CMD (\[.*\])", text)
    assert health is not None
    compile(json.loads(health[1])[2], "health check", "exec")


def test_commands_are_ones_that_the_command_line_takes(deployed):
    learner, server = (parsed(command_of(deployed / f"{image}.Dockerfile")) for image in IMAGES)
    assert (str(learner["start_from"]), learner["source"]) == ("/model", "redis://broker:6379/clicks")
    assert (learner["metrics_host"], learner["metrics_port"]) == ("0.0.0.0", 9101)
    assert str(learner["out"]) == server["run"] == "/runs/live" and learner["publish"] == "/runs/live/published"
    assert (server["host"], server["port"]) == ("0.0.0.0", 8080)


def test_the_compose_file_follows_its_schema(deployed):
    schema = json.loads(
        importlib.resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    )
    jsonschema.validate(compose(deployed), schema)
    wrong = compose(deployed)
    wrong["services"]["server"]["restrat"] = "always"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def test_services_fit_together_and_stay_at_home(deployed):
    whole = compose(deployed)
    services = whole["services"]
    assert set(services) == OURS
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert set(service["networks"]) <= set(whole["networks"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in whole["volumes"] or (deployed / source).is_dir(), volume
    assert services["server"]["volumes"] == ["runs:/runs:ro"] and services["trainer"]["volumes"] == ["runs:/runs"]
    for image in IMAGES:
        assert (deployed / services[image]["build"]["dockerfile"]).is_file()
        assert services[image]["image"] == f"registry.example:5000/ads/pbodl-{image}:{pbodl.__version__}"
    assert not set(services["broker"]["networks"]) & set(services["server"]["networks"])  # servers need no broker


def test_prometheus_and_grafana_find_what_they_read(deployed):
    settings = yaml.safe_load((deployed / "prometheus" / "prometheus.yml").read_text())
    assert all((deployed / "prometheus" / name).is_file() for name in settings["rule_files"])
    targets = {job["job_name"]: job["static_configs"][0]["targets"][0] for job in settings["scrape_configs"]}
    ports = {"pbodl-server": ("server", 8080), "pbodl-learner": ("trainer", 9101)}
    assert targets == {job: f"{service}:{port}" for job, (service, port) in ports.items()}
    for service, port in ports.values():
        assert f"EXPOSE {port}\n" in (deployed / f"{service}.Dockerfile").read_text()
    grafana = deployed / "grafana" / "provisioning"
    (source,) = yaml.safe_load((grafana / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((grafana / "dashboards" / "pbodl.yml").read_text())["providers"]
    mounted = dict(volume.split(":")[1::-1] for volume in compose(deployed)["services"]["grafana"]["volumes"])
    assert (deployed / mounted[provider["options"]["path"]] / "dashboard.json").is_file()


@pytest.mark.parametrize("version", ["1.31", "latest"])
def test_manifests_follow_the_schemas_of_the_api(deployed, version):
    wanted = kubernetes_validate.latest_version() if version == "latest" else version
    for manifest in manifests(deployed):
        kubernetes_validate.validate(manifest, wanted, strict=True)
    wrong = next(one for one in manifests(deployed) if one["kind"] == "Deployment")
    wrong["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, wanted, strict=True)


def test_pods_have_few_rights_and_known_limits(deployed):
    found = pods(deployed)
    assert set(found) == {"broker", "trainer", "server"}
    for pod in found.values():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert set(container["resources"]) == {"requests", "limits"}
        assert "livenessProbe" in container
    (mount,) = found["server"]["containers"][0]["volumeMounts"]
    assert mount["readOnly"] is True and "readOnly" not in found["trainer"]["containers"][0]["volumeMounts"][0]
    names = {one["metadata"]["name"] for one in manifests(deployed) if one["kind"] == "PersistentVolumeClaim"}
    claims = {volume["persistentVolumeClaim"]["claimName"] for pod in found.values() for volume in pod.get("volumes", [])}
    assert claims == names


def test_services_and_policies_name_pods_and_ports_that_exist(deployed):
    ports = {name: {port["name"] for port in pod["containers"][0]["ports"]} for name, pod in pods(deployed).items()}
    for manifest in manifests(deployed):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Service":
            assert {port["targetPort"] for port in spec["ports"]} <= ports[spec["selector"]["app"]]
            assert "type" not in spec  # ClusterIP: nothing outside the cluster
        if manifest["kind"] == "NetworkPolicy":
            app_name = spec["podSelector"]["matchLabels"]["app"]
            assert {port["port"] for rule in spec["ingress"] for port in rule["ports"]} <= ports[app_name]
    policies = {one["metadata"]["name"] for one in manifests(deployed) if one["kind"] == "NetworkPolicy"}
    assert policies == set(ports)


def test_the_model_is_the_one_of_the_run_and_the_learner_starts_with_it(deployed, run, tmp_path):
    ref, comp = load(run), load(deployed / "model")
    assert fingerprint(ref) == fingerprint(comp)
    settings = check_config(read_config(deployed / "model" / "config.toml"))
    events = ROWS[200:]
    source = tmp_path / "events.jsonl"
    source.write_text("".join(json.dumps(event) + "\n" for event in events))
    options = Options(str(source), tmp_path / "live", JOIN, until_end=True, start_from=deployed / "model")
    online(settings, options)
    after = load(tmp_path / "live")
    assert after.rows_learned == ref.rows_learned + len(events)
    ref.learn(events)
    assert fingerprint(after) == fingerprint(ref)


def test_a_model_that_was_only_saved_has_its_configuration(run):
    model = load(run)
    found = config_of(model, run / "config.toml")
    assert check_config(to_tables(found)).build(model.negative_rate).spec == model.spec and to_toml(found)


def test_what_cannot_be_deployed_is_refused(run, tmp_path):
    with pytest.raises(InputError, match="exists; choose another --out"):
        deploy(run, tmp_path, DeployOptions())
    with pytest.raises(InputError, match="--image is 'Not An Image'"):
        deploy(run, tmp_path / "out", DeployOptions(image="Not An Image"))
    with pytest.raises(InputError, match="--cpu is 'a b'"):
        deploy(run, tmp_path / "out", DeployOptions(cpu="a b"))
    ftrl = pbodl.FTRLProximal(config().schema)
    ftrl.learn(ROWS[:20])
    ftrl.save(tmp_path / "ftrl")
    with pytest.raises(InputError, match="cannot learn from a stream"):
        deploy(tmp_path / "ftrl", tmp_path / "out", DeployOptions())
    assert not (tmp_path / "out").exists()


def test_the_command(run, tmp_path):
    done = run_pbodl("deploy", run, "--out", tmp_path / "d", "--json")
    assert done.code == 0, done.output
    told = done.json
    assert "compose.yaml" in told["files"] and (tmp_path / "d" / "README.md").is_file()
    assert shlex.quote(str(tmp_path / "d")) in done.err.replace("\n", "")
