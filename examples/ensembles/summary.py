"""The meters of one run of EnergyPlus as JSON: summary.py METERS.csv OUT.json ORIENTATION HEIGHT."""

from __future__ import annotations

import csv
import json
import sys


def main(meters: str, out: str, orientation: str, height: str) -> None:
    with open(meters, newline="") as file:
        head, *rows = csv.reader(file)
    kinds = {"DistrictHeatingWater": "heating", "DistrictCooling": "cooling"}
    found: dict[str, object] = {"orientation": int(orientation), "height": int(height), "days": len(rows)}
    for column, name in enumerate(head):
        kind = kinds.get(name.strip().partition(":")[0])
        if kind:
            daily = [float(row[column]) / 3.6e6 for row in rows]  # of joules
            found[f"{kind}_kWh"], found[f"{kind}_most_kWh_a_day"] = round(sum(daily), 3), round(max(daily), 3)
    if "heating_kWh" not in found:
        raise SystemExit(f"{meters} has no meter of heat")
    with open(out, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
