"""Fit one model with several processes, each with its own rows.

    torchrun --nproc-per-node 2 examples/two_processes.py

On two machines, the same file and data on each, run on the first, whose name is HOST, and likewise
with --node-rank 1 on the second:

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr HOST --master-port 29500 \
        examples/two_processes.py

Every process takes the same steps, the ones a single process with all rows would take. With GPUs,
say "nccl" for "gloo" and move the model to the rank's own device.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

import firstish

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rows", type=int, default=20_000)
parser.add_argument("--iterations", type=int, default=20)
args = parser.parse_args()

dist.init_process_group("gloo")  # reads what torchrun has put into the environment
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))

# This rank's rows: here every size-th of a data set that all can make. Yours would read its file.
torch.manual_seed(0)
inputs, labels = torch.randn(args.rows, 50), torch.randint(5, (args.rows,))
inputs[:, 0] += labels
mine = (inputs[rank::size].clone(), labels[rank::size].clone())

# The same start on every rank: the seed above is the same, and so is all that was drawn since.
model = nn.Sequential(nn.Linear(50, 20), nn.Tanh(), nn.Linear(20, 5))
objective = firstish.FiniteSum(
    model,
    nn.functional.cross_entropy,
    mine,
    chunk_size=4_096,
    weight_decay=1e-4,
    process_group=dist.group.WORLD,
)
result = firstish.minimize(objective, model, gtol=1e-3, max_iterations=args.iterations)

# All ranks hold the same result; one of them says so.
if rank == 0:
    print(f"{size} processes, {len(mine[0]):,} of {args.rows:,} rows on this one")
    print(result.message)
dist.barrier()  # no rank leaves while another still listens
dist.destroy_process_group()
