"""What ``amfs status`` says of a policy whose process has ended: the command that it names applies the same policy again."""

from __future__ import annotations

import os
import shlex

import pytest

from amfs.host import processes
from amfs.provision.autoscale import Auto
from amfs.provision.provisioner import NodeOptions


@pytest.mark.parametrize("policy", ["default", "my rules.toml"])
def test_the_command_that_applies_it_again_names_policy_and_bounds(policy: str) -> None:
    dead = (processes.host_id(), os.getpid(), processes.start_time(os.getpid()) + 1)  # this number, but another process
    said = Auto(0.0, policy, "", 2, 5, NodeOptions(), process=dead).state()
    command = said.partition("has ended; '")[2].rpartition("' starts it again")[0]
    assert shlex.split(command) == ["amfs", "scale", "auto", "--policy", policy, "--nodes", "2..5"], said
    assert "it is started again soon" in Auto(0.0, policy, "", 2, 5, NodeOptions(), process=dead, tended=True).state()
