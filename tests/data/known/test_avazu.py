"""The schema of Avazu's log, on rows made up in its format."""

import gzip

import msgspec

from pbodl.data.hashing import hash_value
from pbodl.data.known.avazu import AVAZU
from pbodl.data.log.log_reader import open_log
from pbodl.data.schema import Schema

HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,"
    "device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)
ROWS = [
    "1,0,14102100,1005,0,aa,bb,cc,dd,ee,ff,00,11,22,1,2,15706,320,50,1722,0,35,-1,79",
    "2.5e+18,1,14103023,1002,1,aa,bb,cc,dd,ee,ff,00,12,22,0,0,15707,320,50,1722,3,35,100084,79",
]


def test_all_columns_but_id_and_device_ip():
    used = {field.name for field in AVAZU.fields} | {AVAZU.label}
    assert used == set(HEADER.split(",")) - {"id", "device_ip"}
    assert AVAZU.groups == ("user", "ad", "context")
    assert msgspec.convert(msgspec.to_builtins(AVAZU), Schema) == AVAZU


def test_rows_of_its_file(tmp_path):
    path = tmp_path / "train.gz"
    path.write_bytes(gzip.compress("\n".join([HEADER, *ROWS, ""]).encode()))
    (chunk,) = open_log(path, AVAZU)
    batch = chunk.batch
    assert batch.clicks.tolist() == [0.0, 1.0]
    assert batch.times.tolist() == [1413849600.0, 1414710000.0]
    ref = {"hour": 23, "C14": 15707, "C20": 100084, "site_id": "aa"}
    keys = batch.rows(1, 2).keys
    assert {name: int(keys[AVAZU.field_index(name)]) for name in ref} == {name: hash_value(name, v) for name, v in ref.items()}
