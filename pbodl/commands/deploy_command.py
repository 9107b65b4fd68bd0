"""`pbodl deploy`: turn a run folder into something to deploy."""

from pathlib import Path
from typing import Annotated

import typer

from pbodl._pinned import PINNED
from pbodl.commands.shared_options import AsJson, RunFolder, print_json
from pbodl.deployment.deploy_folder import IMAGE_NAME, DeployOptions
from pbodl.deployment.deploy_folder import deploy as write_folder
from pbodl.training.display import console


def deploy(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    image: Annotated[str, typer.Option(help="Name of the images, with their registry: registry.example/ads/pbodl.")] = IMAGE_NAME,
    cpu: Annotated[
        str, typer.Option(help="Processor to compile for: x86-64-v3, the same bits on every machine, or native.")
    ] = PINNED,
    as_json: AsJson = False,
) -> None:
    """Write all that a deployment needs. That is Dockerfiles, a compose file, Kubernetes manifests, alerts and a dashboard."""
    files = write_folder(run, out, DeployOptions(image=image, cpu=cpu))
    console.print(f"{len(files)} files in {out}; its README.md says what they are")
    console.print(f"start everything: cd {out} && docker compose up --build", soft_wrap=True)
    print_json({"out": str(out), "files": files}, as_json)
