"""`pbodl serve --shard` and `pbodl route` as real processes: the answers of one server, and a dead shard."""

import signal

import httpx
import pytest

from pbodl.publishing.publisher import Publisher
from tests.command_line import run_pbodl
from tests.patience import PATIENCE, until
from tests.publishing.published import MODELS, steps
from tests.serving.processes import ServerProcess
from tests.serving.services import REQUEST


@pytest.mark.parametrize("name", ["pairs", pytest.param("fm", marks=pytest.mark.slow)])
def test_a_router_answers_like_one_server_while_the_model_is_published(tmp_path, name):
    model = MODELS[name]()
    publisher = Publisher(model, tmp_path / "model", compact=True)
    model.learn(steps()[0])
    publisher.publish()
    with (
        ServerProcess(tmp_path / "model") as whole,
        ServerProcess(tmp_path / "model", "--shard", "0/2") as first,
        ServerProcess(tmp_path / "model", "--shard", "1/2", "--workers", "2") as second,
        ServerProcess("", "--shard", first.url, "--shard", second.url, "--shard-timeout", "60", command="route") as router,
    ):
        router.wait_until_ready()

        def answers(url: str) -> bytes:
            response = httpx.post(f"{url}/v1/score", json=REQUEST | {"detail": True}, timeout=PATIENCE)
            assert response.status_code == 200, response.text
            return response.content

        for rows in steps()[1:4]:
            model.learn(rows)
            version = f'"model":{publisher.publish()},'.encode()
            until(lambda: all(version in answers(url) for url in (whole.url, router.url)), "serving")  # noqa: B023
            assert answers(router.url) == answers(whole.url)
        second.process.send_signal(signal.SIGTERM)
        second.process.wait(PATIENCE)

        def refused() -> bool:
            new = REQUEST | {"user": {"user": "nobody knows"}, "context": {"site": "nor this"}}
            response = httpx.post(f"{router.url}/v1/score", json=new, timeout=PATIENCE)
            return response.status_code == 503 and response.headers["Retry-After"] == "1" and second.url in response.text

        until(refused, "refusing")
        assert httpx.get(f"{router.url}/readyz", timeout=PATIENCE).status_code == 503


@pytest.mark.parametrize(
    "given, said",
    [
        (["--shard", "nowhere"], "write the address of a server"),
        (["--shard", "http://a", "--shard", "http://a"], "has an address twice"),
        (["--shard", "http://a", "--dead-shard", "ignore"], "must be one of: refuse, prior"),
        (["--shard", "http://a", "--shard-token-file", "none"], "token file none cannot be read"),
        ([], "Missing option '--shard'"),
    ],
)
def test_what_is_wrong_is_told(given, said):
    refused = run_pbodl("route", "--port", "0", *given)
    assert refused.code == 2 and said in refused.prose


@pytest.mark.parametrize(
    "given, said", [(["--shard", "2/2"], "NUMBER/SHARES"), (["--shard", "0/2", "--log-decisions", "a"], "leave out")]
)
def test_a_share_that_cannot_be(given, said, tmp_path):
    refused = run_pbodl("serve", tmp_path, "--port", "0", *given)
    assert refused.code == 2 and said in refused.prose
