"""Train with DistributedDataParallel over gloo."""

from datetime import timedelta

import fall
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

fall.begin()
dist.init_process_group("gloo", timeout=timedelta(seconds=5))
model = DistributedDataParallel(torch.nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.001)
for step in range(1_000_000):
    optimizer.zero_grad()
    model(torch.ones(8, 100)).square().mean().backward()
    optimizer.step()
    fall.at(step)
