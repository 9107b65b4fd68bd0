"""The schema of Avazu's click log (Kaggle, 2014): `--preset avazu`.

All columns but `id` and `device_ip`, which hardly ever recur. From `hour` (YYMMDDHH) the model learns the hour of the day, but
not the weekday: in a log of ten days the weekday nearly identifies the day, and what is learned from it misleads on the next.
"""

from pbodl.data.schema import Field, Schema

_GROUPS = {
    "C1": "context",
    "banner_pos": "context",
    "site_id": "context",
    "site_domain": "context",
    "site_category": "context",
    "app_id": "context",
    "app_domain": "context",
    "app_category": "context",
    "device_id": "user",
    "device_model": "user",
    "device_type": "user",
    "device_conn_type": "user",
    "C14": "ad",
    "C15": "ad",
    "C16": "ad",
    "C17": "ad",
    "C18": "ad",
    "C19": "ad",
    "C20": "ad",
    "C21": "ad",
}

AVAZU = Schema(
    label="click",
    time="hour",
    time_format="%y%m%d%H",
    fields=[
        Field("hour", group="context", derive="hour_of_day"),
        *(Field(name, group=group) for name, group in _GROUPS.items()),
    ],
)
