"""Fit a new last layer on a frozen network: the features once, then a convex problem.

    python examples/last_layer.py

A network learns the digits 0 to 4; then all of it but its last layer is frozen, and a new head is
fitted to the digits 5 to 9. Through `ModuleObjective` each evaluation runs the whole network; with
the features kept, it is one product of matrices, and `LinearModel` knows its curvature in closed
form. Both ways minimise the same function.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import firstish

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
digits = load_digits()
images, labels = torch.tensor(digits.data / 16), torch.tensor(digits.target)
old, new = labels < 5, labels >= 5
decay = 1e-4

body = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
network = nn.Sequential(body, nn.Linear(32, 5))
loss_fn = nn.functional.cross_entropy
first = firstish.ModuleObjective(network, loss_fn, images[old], labels[old], weight_decay=decay)
print("all of it, digits 0 to 4:", firstish.minimize(first, network, gtol=1e-3).message)

body.requires_grad_(False)  # frozen parameters are constants: they do not enter the vector
held = torch.arange(int(new.sum())) % 4 == 0  # a quarter of the rows is held out
rows, targets = images[new], labels[new] - 5

# The plain way: the network as it is, with a new head.
network[1] = nn.Linear(32, 5)
nn.init.zeros_(network[1].weight)
nn.init.zeros_(network[1].bias)
whole = firstish.ModuleObjective(network, loss_fn, rows[~held], targets[~held], weight_decay=decay)
plain = firstish.minimize(whole, network, gtol=1e-5)
print("head, whole network:", plain.message)

# The features once, then a linear model on them.
with torch.no_grad():
    kept = body(rows)
head = firstish.LinearModel(
    kept[~held],
    targets[~held],
    firstish.families.Multinomial(classes=5),
    weight_decay=decay,
    intercept=True,
)
short = firstish.minimize(head, head.initial(), gtol=1e-5)
print("head, features kept:", short.message)
print(f"the same minimum to {abs(plain.value - short.value):.0e};", end=" ")
print(f"{plain.seconds / short.seconds:.1f} times the seconds for the whole network")

weights = short.x.view(-1, 33)  # a row for each score, the intercept last
with torch.no_grad():
    scores = kept[held] @ weights[:, :-1].T + weights[:, -1]
    right = (scores.argmax(1) == targets[held]).double().mean()
print(f"right on the rows held out: {right:.1%}")
