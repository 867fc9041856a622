"""What one call of a worker process may use, and how many calls may run and wait."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkLimits:
    num_processes: int  # that run at the same time
    cpu_s: int  # CPU time of a call
    wall_s: float  # time of a call; longer than `cpu_s`, because engines use the same cores
    memory_bytes: int  # that a call may allocate
    max_waiting: int  # calls of one key that wait; all keys together may have several times as many
    wait_s: float  # how long a call waits for a process
    # After so long without a sign of life the fork server is replaced. 0: never.
    hung_after_s: float = 4.0
    load_s: float = 60.0  # how long it may take to load something, such as a tokenizer
