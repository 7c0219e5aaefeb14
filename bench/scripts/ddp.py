"""Trains a small network with torch, on gloo if there are several ranks; writes the seconds of each block of steps."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from turns import Turns

_, seconds, result = sys.argv[1], float(sys.argv[2]), sys.argv[3]
GLOBAL_BATCH = 256
WARM_UP, BLOCK = 10, 5

ranks = int(os.environ.get("WORLD_SIZE", "1"))
if ranks > 1:
    dist.init_process_group("gloo")
chief = ranks == 1 or dist.get_rank() == 0
torch.manual_seed(1)
net: nn.Module = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10),
)  # fmt: skip
net = DistributedDataParallel(net) if ranks > 1 else net
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
count = GLOBAL_BATCH // ranks
x, y = torch.randn(count, 1, 28, 28), torch.arange(count) % 10


def step() -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()


for _ in range(WARM_UP):
    step()
turns, began, blocks = Turns(), time.perf_counter(), []
over = torch.zeros(1)
while not over:
    with turns.next():
        before = time.perf_counter()
        for _ in range(BLOCK):
            step()
        blocks.append(time.perf_counter() - before)
    over = torch.tensor([float(chief and time.perf_counter() - began > seconds)])
    if ranks > 1:
        dist.all_reduce(over)  # all exit after the same step
turns.leave()
if chief:
    with open(result + ".new", "w") as file:
        json.dump(blocks, file)
    os.rename(result + ".new", result)
if ranks > 1:
    dist.destroy_process_group()
