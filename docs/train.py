"""A training run to try the recorder on: a small network, 300 steps of AdamW, about a minute on any machine."""

import time

import torch

from inspector.integrations.torch import record

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)

with record(optimizer, "run.session", model=model, capture="grads:1+keyframes:50") as recording:
    for step in range(1, 301):
        x = torch.randn(64, 32)
        loss = torch.nn.functional.mse_loss(model(x), torch.sin(x[:, :8]))
        recording.loss(loss)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
        time.sleep(0.2)  # slow enough to be watched
