"""``make chaos N=20 SEED=1``: so many real runs, each with its own seed, one disturbance each.

    python -m chaos --runs 20 --seed 1 [--load montage|layers|session|dax|fs] [--kind kill|hang|cut|submitter|task|mount]
                    [--replicas K] [--jobs J] [--keep DIR]

Prints a table of all runs. Exit code 1 if there was any finding: the command that repeats the run is printed, and its logs are kept in DIR.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos import loads
from chaos.disturbances import KINDS
from chaos.runs import Baselines, Outcome, Plan, run

HEAD = ("seed", "load", "disturbance", "outcome", "time lost s", "work lost s", "ratio")


def table(outcomes: list[Outcome]) -> str:
    rows = [HEAD, *(outcome.row() for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def totals(outcomes: list[Outcome]) -> str:
    lines = []
    for kind in KINDS:
        those = [outcome for outcome in outcomes if outcome.plan.kind == kind]
        if those:
            late = sum(outcome.what in ("too late", "not possible here") for outcome in those)
            lines.append(f"{kind}: {len(those) - late} runs, {sum(bool(outcome.findings) for outcome in those)} with findings"
                         + (f"; {late} more were over too early or are not possible here" if late else ""))  # fmt: skip
    both = [(outcome.lost_s, outcome.work_s) for outcome in outcomes if outcome.lost_s is not None and outcome.work_s]
    if both:
        lost, work = sum(one for one, _ in both), sum(other for _, other in both)
        means = f"{lost / len(both):.1f} s later, {work / len(both):.1f} task-seconds of work lost"
        lines.append(f"per lost node: {means}; ratio {lost / work:.1f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description="real sessions under random disturbances")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the others follow")
    parser.add_argument("--load", choices=["", *loads.WORKFLOWS, "fs"], default="")
    parser.add_argument("--kind", choices=["", *KINDS], default="")
    parser.add_argument("--replicas", type=int, default=0, help="of files in the load fs (default: 1 or 2, drawn)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "amfs-chaos", help="for logs of runs with findings")
    options = parser.parse_args()
    baselines = Baselines(Path(tempfile.mkdtemp(prefix="chaos-base-")))
    plans = [Plan(seed, options.load, options.kind, options.replicas) for seed in range(options.seed, options.seed + options.runs)]
    for plan in {plan.workflow.name: plan for plan in plans if plan.workflow}.values():
        baselines.of(plan)  # one at a time, so that two do not make the same
    outcomes = []
    said: set[str] = set()
    begin = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda plan: run(plan, options.keep, baselines), plans):
            outcomes.append(outcome)
            for remark in outcome.remarks:
                if remark not in said:
                    said.add(remark)
                    print(f"note: {remark}", flush=True)
            print("  ".join(outcome.row()), f"({outcome.seconds:.0f} s)", flush=True)
            for finding in outcome.findings:
                print(f"    {finding}", flush=True)
            if outcome.findings:
                print(f"    again: {outcome.plan.command}\n    logs: {outcome.home}", flush=True)
    print(f"\n{table(outcomes)}\n\n{totals(outcomes)}\n{len(outcomes)} runs in {time.monotonic() - begin:.0f} s")
    return 1 if any(outcome.findings for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
