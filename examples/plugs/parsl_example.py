"""Apps of Parsl on two nodes: make plug-parsl."""

import tempfile

import parsl

from amfs.plugs.parsl import AmfsExecutor


@parsl.python_app
def square(number):
    return number * number


@parsl.python_app
def add(*numbers):
    return sum(numbers)


with tempfile.TemporaryDirectory() as place:
    executor = AmfsExecutor(nodes=2, slots=1)
    with parsl.load(parsl.Config(executors=[executor], run_dir=place, usage_tracking=0)):
        total = add(*[square(number) for number in range(100)]).result()
print(f"sum: {total}")
assert total == sum(number * number for number in range(100))
