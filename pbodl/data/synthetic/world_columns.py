"""How the entities of the synthetic world are written down: Avazu's columns, names and formats.

A categorical column is a function of one entity (a site's id and its domain are both functions of the place),
kept as a dictionary of texts and one code per entity number. Devices and addresses are too many for that:
their columns are plain texts.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from pbodl.data.synthetic import world
from pbodl.data.synthetic.world import APPS, SITES, Geography, Impressions, Ints, Market

FIRST_DAY = "2014-10-21"  # Avazu's
NO_SITE, NO_APP, NO_DEVICE = "85f751fd", "ecad2386", "a99f214a"

GROUPS = {
    "context": ("hour", "C1", "banner_pos", "site_id", "site_domain", "site_category",
                "app_id", "app_domain", "app_category"),
    "user": ("device_id", "device_ip", "device_model", "device_type", "device_conn_type"),
    "ad": ("C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21"),
}  # fmt: skip
ORDER = ("click", "time", *(name for names in GROUPS.values() for name in names), "p_true")


class WorldColumn(NamedTuple):
    entity: str
    codes: Ints  # [entities]
    dictionary: pa.StringArray


class Columns:
    """Turns impressions into Arrow arrays, all but `click` and `p_true`."""

    def __init__(self, seed: int, geo: Geography, ads: Market) -> None:
        self._geo, self._ads = geo, ads
        self._devices = _identifiers("device", world.DEVICES)
        self._devices[0] = NO_DEVICE
        self._addresses = _identifiers("address", world.ADDRESSES)
        draws = world.rng(seed, "columns")
        campaigns = ads.advertiser.size
        # Numbers of first-day creatives are in no order; later ones count upwards, as an ad server's would.
        creative, campaign = 15000 + np.arange(ads.size.size), 1700 + np.arange(campaigns)
        creative[: world.SLOTS] = draws.permutation(creative[: world.SLOTS])
        campaign[: world.CAMPAIGNS] = draws.permutation(campaign[: world.CAMPAIGNS])
        widths = np.array([320, 300, 216, 728, 120, 480, 320])[ads.size]
        heights = np.array([50, 250, 36, 90, 20, 320, 480])[ads.size]
        self._columns = {
            "C1": _column("kind", [1005, 1002, 1010, 1012, 1007, 1008, 1001, 1001]),
            "banner_pos": _column("banner", [0, 1, 2, 4, 5, 7]),
            **_place_columns("site", geo, slice(0, SITES), NO_SITE),
            **_place_columns("app", geo, slice(SITES, SITES + APPS), NO_APP),
            "device_model": _column("model", _identifiers("model", world.MODELS)),
            "device_type": _column("model", np.array([1, 0, 4, 5])[geo.device_type]),
            "device_conn_type": _column("connection", [0, 2, 3, 5]),
            "C14": _column("creative", creative),
            "C15": _column("creative", widths),
            "C16": _column("creative", heights),
            "C17": _column("campaign", campaign),
            "C18": _column("campaign", np.searchsorted([0.5, 0.8, 0.95], draws.random(campaigns))),
            "C19": _column("campaign", 33 + world.zipf(draws.random(campaigns), 60, 0.9)),
            "C20": _column("channel", np.concatenate([[-1], 100000 + np.arange(campaigns) % 160])),
            "C21": _column("campaign", 13 + ads.advertiser),
        }

    def arrow(self, rows: Impressions) -> dict[str, pa.Array]:
        campaign = self._ads.campaign[rows.day, rows.slot]
        entities = {
            "kind": self._geo.device_type[rows.model] + 4 * self._geo.odd[rows.place],
            "banner": rows.banner,
            "place": rows.place,
            "model": rows.model,
            "connection": rows.connection,
            "creative": self._ads.creative[rows.day, rows.slot],
            "campaign": campaign,
            "channel": np.where(rows.direct, 0, 1 + campaign),
        }
        arrays = {
            name: pa.DictionaryArray.from_arrays(column.codes[entities[column.entity]], column.dictionary)
            for name, column in self._columns.items()
        }
        arrays["device_id"] = _texts(self._devices[rows.device])
        arrays["device_ip"] = _texts(self._addresses[rows.address])
        arrays["hour"] = pa.array(_yymmddhh(rows.time))
        arrays["time"] = pa.array(rows.time + np.datetime64(FIRST_DAY, "s").astype(np.int64))
        return arrays


def _column(entity: str, values: ArrayLike) -> WorldColumn:
    texts, codes = np.unique(np.asarray(values).astype(np.str_), return_inverse=True)
    return WorldColumn(entity, codes.astype(np.int32), pa.array(texts.tolist()))


def _place_columns(kind: str, geo: Geography, here: slice, absent: str) -> dict[str, WorldColumn]:
    """Identifier, domain and category of every site, or of every app; constants for places of the other kind, as in Avazu."""
    columns = {}
    places = np.arange(SITES + APPS)
    for name, numbers in (("id", places), ("domain", geo.domain), ("category", geo.category)):
        names = _identifiers(f"{kind} {name}", places.size + 1)
        texts = np.full(places.size, absent if name == "id" else names[-1])
        texts[here] = names[numbers[here]]
        columns[f"{kind}_{name}"] = _column("place", texts)
    return columns


def _identifiers(kind: str, n: int) -> NDArray[np.bytes_]:
    """`n` distinct texts of eight hexadecimal digits, the same in every world: numbers, mixed one to one."""
    salt = int.from_bytes(world.rng(0, kind).bytes(4))
    x = np.arange(n, dtype=np.uint32) ^ np.uint32(salt)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    return np.frombuffer(x.astype(">u4").tobytes().hex().encode(), dtype="S8").copy()


def _texts(values: NDArray[np.bytes_]) -> pa.StringArray:
    """An Arrow array straight from texts of one width."""
    n, width = len(values), values.dtype.itemsize
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(values))


def _yymmddhh(time: NDArray[np.int64]) -> Ints:
    """Avazu's `hour` as a number, from seconds since the first midnight, ascending."""
    first, last = time[0] // 3600, time[-1] // 3600
    hours = np.datetime_as_string(np.datetime64(FIRST_DAY, "h") + np.arange(first, last + 1), unit="h")
    numbers = np.array([int(text[2:].replace("-", "").replace("T", "")) for text in hours], dtype=np.int32)
    return numbers[time // 3600 - first]
