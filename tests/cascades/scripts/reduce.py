"""Reduce a tensor over gloo with `all_reduce`, with a barrier at every tenth step."""

from datetime import timedelta

import fall
import torch
import torch.distributed as dist


def main() -> None:
    fall.begin()
    dist.init_process_group("gloo", timeout=timedelta(seconds=5))
    total = torch.ones(1000)
    for step in range(1_000_000):
        dist.all_reduce(total)
        total /= dist.get_world_size()
        if step % 10 == 0:
            dist.monitored_barrier()
        fall.at(step)


if __name__ == "__main__":
    main()
