"""Runs many seeds and prints the faults that they found."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fuzz.seeds import Finding, Verdict, run_seed


def hunt(seeds: Iterable[int], *, quiet: bool, kind: str = "", say: Callable[[str], None], stop_at: int = 1) -> int:
    """Run all ``seeds``; returns how many failed. Gives up after ``stop_at`` failures. Says what failed, and a summary at the end."""
    verdicts: list[Verdict] = []
    failed = 0
    mode = ("--quiet-mode " if quiet else "") + (f"--{kind} " if kind else "")
    for seed in seeds:
        try:
            verdicts.append(run_seed(seed, quiet=quiet, kind=kind))
        except Finding as finding:
            failed += 1
            say(finding.report)
            say(f"replay: python -m fuzz {mode}--seeds {seed} --verbose")
            if failed >= stop_at:
                break
    say(
        f"{len(verdicts)} seeds {'in quiet mode' if quiet else 'with faults'} found nothing, {failed} failed; "
        f"{sum(v.events for v in verdicts)} events, {sum(v.tasks for v in verdicts)} tasks, "
        f"{sum(v.virtual_s for v in verdicts):.0f} virtual seconds; digest {sum(v.digest for v in verdicts) % 2**64:016x}"
    )
    return failed
