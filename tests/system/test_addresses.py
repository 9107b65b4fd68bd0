"""No secret passes through an address: refused where it comes in, hidden where a text is shown."""

import pytest

from pbodl.errors import InputError
from pbodl.system.addresses import refuse_secrets, secret_from, without_secrets

SECRET = "hunter2"
WITH_SECRETS = [
    f"redis://:{SECRET}@host:6379/s",
    f"redis://me:{SECRET}@host/s?group=g",
    f"redis://:{SECRET}#x@host/s",
    f"redis://:{SECRET}/x@host/s",
    f"redis://:a@{SECRET}@host/s",
    f"kafka://host/t?sasl.password={SECRET}",
    f"kafka://host/t?group=g&ssl.key.password={SECRET}&x=1",
    f"kafka://host/t?sasl.oauthbearer.client.secret={SECRET}",
    f"s3://AKIA:{SECRET}@bucket/models",
]


@pytest.mark.parametrize("address", WITH_SECRETS)
def test_secrets_are_refused_and_never_shown(address):
    with pytest.raises(InputError, match="holds a secret") as refused:
        refuse_secrets(address, "use a file")
    assert SECRET not in str(refused.value) and "use a file" in str(refused.value)
    assert SECRET not in without_secrets(f"a text about '{address}', and more")


@pytest.mark.parametrize(
    "address",
    ["redis://host/s", "redis://me@host/s?password_file=/run/p", "kafka://h:1,h:2/t?group=g&ssl.key.location=/k.pem", "runs/a@b:c"],
)
def test_other_addresses_pass(address):
    refuse_secrets(address, "")


def test_secrets_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    assert secret_from(str(tmp_path / "secret"), "PBODL_X") == SECRET
    assert secret_from(None, "PBODL_X") is None
    monkeypatch.setenv("PBODL_X", "other")
    assert secret_from(None, "PBODL_X") == "other"
    with pytest.raises(InputError, match="cannot be read: No such file"):
        secret_from(str(tmp_path / "none"), "PBODL_X")
