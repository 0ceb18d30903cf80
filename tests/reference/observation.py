"""What evaluations record beside the loss (io/FORMAT.md, "The probe"): some tokens, activations, norms."""

from dataclasses import dataclass

import numpy as np
import torch

MOST, TOP = 512, 8  # tokens (observe.probe), logits of each


@dataclass
class Probe:
    """The first scored tokens of the held-out set; sample, position, target of each."""

    sample: np.ndarray
    position: np.ndarray
    target: np.ndarray

    @classmethod
    def of(cls, samples, most):
        tokens = [(i, int(p), int(s.ids[p])) for i, s in enumerate(samples) for p in s.scored][:most]
        return cls(*(np.array(column, dtype=np.int64) for column in zip(*tokens)))

    def __len__(self):
        return len(self.sample)

    def look(self, model, samples, adapter, scale):
        """The columns of one row of /probe and /activation/{rms, absmax}."""
        columns = {name: [] for name in ("nll", "target_logit", "topk_id", "topk_logit")}
        squares, largest, count = 0.0, 0.0, 0
        for i in np.unique(self.sample):
            scored = self.position[self.sample == i]
            residuals = []
            with torch.no_grad():
                x = model.hidden_states(samples[i].ids, adapter, scale, residuals=residuals)
                logits = model.scored_logits(x, scored).double().numpy()
            for row, target in zip(logits, samples[i].ids[scored]):
                order = np.argsort(-row, kind="stable")[:TOP]
                top = row.max()
                columns["nll"].append(np.log(np.exp(row - top).sum()) + top - row[target])
                columns["target_logit"].append(row[target])
                columns["topk_id"].append(order)
                columns["topk_logit"].append(row[order])
            seen = np.stack([r[: scored[-1]].double().numpy() for r in residuals])  # [layers, positions, h]
            squares = squares + np.square(seen).sum(axis=(1, 2))
            largest = np.maximum(largest, np.abs(seen).max(axis=(1, 2)))
            count += seen[0].size
        return columns, {"rms": np.sqrt(squares / count), "absmax": largest}


def ba_norms(names, adapter, scale):
    """Of each module: names are in pairs, A then B."""
    norms = []
    for a, b in zip(names[::2], names[1::2]):
        product = adapter[b].detach().double() @ adapter[a].detach().double()
        norms.append(float(scale * torch.linalg.matrix_norm(product)))
    return norms


def update_norms(names, adapter, before):
    """Of each tensor; before: the adapter before the update just made, None where there was none."""
    if before is None:
        return [0.0] * len(names)
    return [float(torch.linalg.vector_norm(adapter[n].detach().double() - before[n].double())) for n in names]
