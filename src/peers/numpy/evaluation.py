"""The held-out loss, and what the probe shows of it (io/FORMAT.md, "The probe")."""

import numpy as np

TOP = 8


class Probe:
    """Columns of /probe and /activation of one evaluation, of its first `most` scored tokens."""

    def __init__(self, most, layers):
        self.left, self.places = most, 0
        self.columns = {"nll": [], "target_logit": [], "topk_id": [], "topk_logit": []}
        self.squares, self.absmax = np.zeros(layers), np.zeros(layers)

    def see(self, row):
        take = min(self.left, len(row.nll))
        self.left -= take
        if take == 0:
            return
        ids, top = largest(row.logits[:take])
        for name, value in zip(self.columns, (row.nll[:take], row.target_logit[:take], ids, top)):
            self.columns[name].append(value)
        seen = np.zeros(len(row.ids), bool)
        for begin, end in zip(row.begin, row.begin[1:]):
            inside = row.at[:take][(row.at[:take] >= begin) & (row.at[:take] < end)]
            if inside.size:
                seen[begin:inside.max() + 1] = True  # up to the position that predicts the last probed token
        for layer, x in enumerate(row.residual):
            self.squares[layer] += np.sum(np.square(x[seen]))
            self.absmax[layer] = max(self.absmax[layer], np.abs(x[seen]).max())
        self.places += seen.sum()

    def probe_row(self):
        return {name: np.concatenate(parts) for name, parts in self.columns.items()}

    def activation_row(self, hidden):
        return {"rms": np.sqrt(self.squares / (self.places * hidden)), "absmax": self.absmax}


def largest(logits):
    """Ids and values of the TOP largest, equal ones by ascending id; -1 and NaN beyond the vocabulary."""
    n, vocab = logits.shape
    k = min(TOP, vocab)
    ids, top = np.full((n, TOP), -1), np.full((n, TOP), np.nan)
    ids[:, :k] = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    top[:, :k] = np.take_along_axis(logits, ids[:, :k], 1)
    return ids, top


def evaluate(model, held_out, adapter, micro, probe=None):
    """(sum of nll, scored tokens)."""
    total, count = 0.0, 0
    for begin in range(0, len(held_out), micro):
        row = model.forward(held_out[begin:begin + micro], adapter)
        total += float(row.nll.sum())
        count += len(row.nll)
        if probe:
            probe.see(row)
    return total, count
