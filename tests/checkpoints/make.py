"""Writes the small checkpoints beside it, with what PyTorch itself says that they hold.

    python tests/checkpoints/make.py            # with torch, numpy and safetensors
    python tests/checkpoints/make.py bitsandbytes  # with bitsandbytes as well: that file alone

Of each NAME.pt (or folder NAME) the weights, moments, gradients and step counts go to NAME.expected.npz, taken from the
params and `optimizer.state[param]` of the program that saved them, never by position. Made with PyTorch 2.13.0 on the
CPU, bitsandbytes 0.50.2.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = Path(__file__).parent


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.o_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.q_proj(x) @ self.k_proj(x).transpose(-1, -2)
        return self.o_proj(scores.softmax(-1) @ self.v_proj(x))


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (
            nn.Linear(width, 2 * width, bias=False),
            nn.Linear(width, 2 * width, bias=False),
        )
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.gate_proj(x).relu() * self.up_proj(x))


class Layer(nn.Module):
    """Named and registered as the Llama of transformers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(width), Mlp(width)
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Gpt(nn.Module):
    """A head tied to the embedding; eleven layers where numbers are to sort as numbers."""

    def __init__(self, layers: int = 2, width: int = 4, tied: bool = True) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(7, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 7, bias=False)
        if tied:
            self.lm_head.weight = self.embed_tokens.weight
        self.register_buffer("inv_freq", torch.arange(2.0))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))

    def loss(self) -> torch.Tensor:
        return (
            self(torch.randint(0, 7, (2, 5))).square().mean() + 0.1 * self(torch.randint(0, 7, (1, 3))).mean()
        )


class Net(nn.Module):
    """Convolutions in channels-last memory, and norms with buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def loss(self) -> torch.Tensor:
        x = self.bn1(self.conv1(torch.randn(4, 3, 7, 7)))
        return self.fc(self.bn2(self.conv2(x.relu())).mean((2, 3))).square().mean()


def train(model: Any, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss().backward()
        optimizer.step()


def expected(
    named: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """By name and lane, float32 (float64 rounded), and the steps of each param."""
    found: dict[str, Any] = {}
    for name, param in named.items():
        found[f"w {name}"] = param.detach().float().numpy()
        state = optimizer.state.get(param, {}) if optimizer is not None else {}
        if "exp_avg" in state:
            found[f"m {name}"] = state["exp_avg"].float().numpy()
            found[f"v {name}"] = state["exp_avg_sq"].float().numpy()
        if "step" in state:
            found[f"t {name}"] = np.float64(float(state["step"]))
    return found


def write(name: str, document: Any, values: dict[str, Any], *, then: Any = dict, **how: Any) -> None:
    """`then` gives more values, once the document is written: it may change what that holds."""
    torch.save(document, FOLDER / f"{name}.pt", **how)
    values = {key: np.array(value) for key, value in values.items()} | then()
    np.savez_compressed(FOLDER / f"{name}.expected.npz", **values)


def gradients_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: param.grad.clone() for name, param in model.named_parameters() if param.grad is not None}


def next_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The weights after one more step of PyTorch's optimizer with the gradients that are there; of copies."""
    held = [(p, p.detach().clone()) for p in model.parameters()]
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.step()
    found = {f"after {name}": param.detach().numpy().copy() for name, param in model.named_parameters()}
    with torch.no_grad():
        for param, before in held:
            param.copy_(before)
    optimizer.load_state_dict(state)
    return found


def named(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


def by_decay(model: nn.Module) -> list[dict[str, Any]]:
    params = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1, "lr": 3e-4},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0, "lr": 3e-4},
    ]


def main() -> None:
    # 1. A tied GPT as people save it, decayed by dimensions.
    torch.manual_seed(1)
    gpt = Gpt()
    adamw = torch.optim.AdamW(by_decay(gpt), betas=(0.9, 0.95))
    train(gpt, adamw, 3)
    write(
        "tied-gpt",
        {
            "model": gpt.state_dict(),
            "optimizer": adamw.state_dict(),
            "iter_num": 3,
            "best_val_loss": torch.tensor(2.5),
        },
        expected(named(gpt), adamw),
    )

    # 2. Convolutions: state_dict() has buffers between the params.
    torch.manual_seed(2)
    net = Net().to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=0.01)
    train(net, adam, 4)
    document = {"state_dict": net.state_dict(), "optimizer": adam.state_dict(), "grads": gradients_of(net)}
    write("conv-adam", document, expected(named(net), adam), then=lambda: next_step(net, adam))

    # 3. Empty groups, an empty tensor, a scalar, params that joined late or never had a gradient.
    torch.manual_seed(3)
    odd = nn.Module()
    shapes = {"logit_scale": (), "empty": (0, 3), "never": (3, 2), "late": (5,), "usual": (4, 3)}
    for name, shape in shapes.items():
        odd.register_parameter(name, nn.Parameter(torch.randn(shape)))
    groups: list[dict[str, Any]] = [
        {"params": [], "lr": 1.0},
        {"params": [odd.logit_scale, odd.empty, odd.usual], "lr": 1e-2},
        {"params": [odd.never, odd.late], "lr": 1e-4, "eps": 1e-6, "betas": (0.8, 0.99), "weight_decay": 0.5},
    ]
    adamw = torch.optim.AdamW(groups)
    for step in range(5):
        adamw.zero_grad()
        loss = odd.logit_scale * odd.usual.square().sum() + odd.empty.sum()
        (loss + odd.late.sum() ** 2 if step >= 3 else loss).backward()
        adamw.step()
    write("odd-groups", {"model_state_dict": odd.state_dict(), "optimizer_state_dict": adamw.state_dict()},
          expected(named(odd), adamw))  # fmt: skip

    # 4. Names with dots, slashes and Unicode, which PyTorch saves beside the groups; amsgrad and maximize.
    torch.manual_seed(4)
    named_params = [
        ("encoder/layer_0/kernel:0", nn.Parameter(torch.randn(3, 3))),
        ("a.b..c", nn.Parameter(torch.randn(3, 3))),
        ("層.0.γ", nn.Parameter(torch.randn(3))),
        ("spaces are fine", nn.Parameter(torch.randn(3))),
    ]
    adamw = torch.optim.AdamW(
        named_params, lr=torch.tensor(1e-3), amsgrad=True, maximize=True, capturable=False
    )
    for _ in range(2):
        adamw.zero_grad()
        sum(p.pow(2).sum() * i for i, (_, p) in enumerate(named_params, 1)).backward()
        adamw.step()
    # The weights in another order than the optimizer has them.
    weights = {name: p.detach() for name, p in reversed(named_params)}
    write(
        "named-params", {"weights": weights, "optim": adamw.state_dict()}, expected(dict(named_params), adamw)
    )

    # 5. bfloat16 throughout, wrapped for several processes and compiled.
    torch.manual_seed(5)
    half = Gpt(1, 4, tied=False).bfloat16()
    adamw = torch.optim.AdamW(half.parameters(), lr=1e-3, foreach=True)
    train(half, adamw, 2)
    prefixed = {f"module._orig_mod.{name}": value for name, value in half.state_dict().items()}
    write(
        "bf16-wrapped", {"net": prefixed, "opt": adamw.state_dict(), "epoch": 1}, expected(named(half), adamw)
    )

    # 6. The format of before PyTorch 1.6, an optimizer of then: steps as whole numbers.
    torch.manual_seed(6)
    small = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    adamw = torch.optim.AdamW(small.parameters())
    small.loss = lambda: small(torch.randn(5, 3)).square().mean()  # type: ignore[assignment]
    train(small, adamw, 2)
    old = adamw.state_dict()
    for state in old["state"].values():
        state["step"] = int(state["step"])
    old["param_groups"] = [
        {key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "amsgrad", "params")}
        for group in old["param_groups"]
    ]
    write(
        "legacy",
        [small.state_dict(), old],
        expected(named(small), adamw),
        _use_new_zipfile_serialization=False,
    )

    # 7. As Lightning saves it, two optimizers over one model, a frozen part.
    torch.manual_seed(7)
    light = nn.ModuleDict({"backbone": nn.Linear(3, 3), "head": nn.Linear(3, 2), "critic": nn.Linear(3, 1)})
    light["backbone"].requires_grad_(False)
    first = torch.optim.AdamW(light["head"].parameters(), lr=1e-3)
    second = torch.optim.AdamW(light["critic"].parameters(), lr=1e-2, weight_decay=0.2)
    for _ in range(3):
        x = light["backbone"](torch.randn(4, 3))
        (light["head"](x).square().mean() + light["critic"](x).mean()).backward()
        first.step()
        second.step()
    values = expected(named(light), first) | expected(named(light["critic"]), second)
    values = {
        k.replace(" weight", " critic.weight").replace(" bias", " critic.bias"): v for k, v in values.items()
    }
    write(
        "lightning",
        {
            "epoch": 1, "global_step": 3, "pytorch-lightning_version": "2.5.0",
            "loops": {"fit_loop": {"state_dict": {}}},
            "callbacks": {}, "lr_schedulers": [],
            "state_dict": {f"model.{name}": value for name, value in light.state_dict().items()},
            "optimizer_states": [first.state_dict(), second.state_dict()],
        },
        {f"{k.split(' ', 1)[0]} model.{k.split(' ', 1)[1]}": v for k, v in values.items()},
    )  # fmt: skip

    # 8. By name, as states for several processes are kept; nested and flattened.
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    torch.manual_seed(8)
    gpt = Gpt(1)
    adamw = torch.optim.AdamW(by_decay(gpt), fused=True)
    train(gpt, adamw, 2)
    model, state = get_state_dict(gpt, adamw)
    write("by-name", {"model": model, "optim": state}, expected(named(gpt), adamw))
    flat = get_state_dict(gpt, adamw, options=StateDictOptions(flatten_optimizer_state_dict=True))[1]
    tensors = {name: value.clone() for name, value in flat.items() if isinstance(value, torch.Tensor)}
    save_file(tensors | {f"model.{n}": p.detach().clone() for n, p in gpt.named_parameters()},
              FOLDER / "by-name-flat.safetensors")  # fmt: skip

    # 9. A folder as the Trainer writes it: weights in shards without the order of the model, the optimizer beside them.
    torch.manual_seed(9)
    gpt = Gpt(11, 2)
    adamw = torch.optim.AdamW(by_decay(gpt))
    train(gpt, adamw, 2)
    folder = FOLDER / "sharded"
    folder.mkdir(exist_ok=True)
    held = {name: param.detach() for name, param in gpt.named_parameters()}
    names = sorted(held)
    shards = {f"model-{i + 1:05d}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, part in shards.items():
        save_file({name: held[name].contiguous() for name in part}, folder / file, {"format": "pt"})
    places = {name: file for file, part in shards.items() for name in part}
    index = {"metadata": {"total_size": 4 * sum(p.numel() for p in held.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    torch.save(adamw.state_dict(), folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text('{"global_step": 2}\n')
    np.savez_compressed(FOLDER / "sharded.expected.npz", **expected(named(gpt), adamw))
    order = [
        name for g in by_decay(gpt) for p in g["params"] for name, each in gpt.named_parameters() if each is p
    ]
    (FOLDER / "sharded.names.txt").write_text("\n".join(order) + "\n")

    # 10. A few adapters of a frozen model, gradients beside them, SGD.
    torch.manual_seed(10)
    base = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    base.requires_grad_(False)
    adapters = nn.ParameterDict(
        {"lora_A": nn.Parameter(torch.randn(2, 4)), "lora_B": nn.Parameter(torch.zeros(4, 2))}
    )
    adamw = torch.optim.AdamW(adapters.parameters(), lr=2e-4)
    for _ in range(2):
        adamw.zero_grad()
        (
            base(torch.randn(3, 4)) + torch.randn(3, 4) @ (adapters["lora_B"] @ adapters["lora_A"])
        ).square().sum().backward()
        adamw.step()
    weights = {f"base.{n}": v for n, v in base.state_dict().items()} | dict(adapters.state_dict())
    values = expected({f"base.{n}": p for n, p in base.named_parameters()}) | expected(
        dict(adapters.items()), adamw
    )
    gradients = {name: param.grad for name, param in adapters.items()}
    values |= {f"g {name}": each.numpy() for name, each in gradients.items()}
    document = {"state_dict": weights, "optimizer": adamw.state_dict(), "grads": gradients}
    write("adapters", document, values, then=lambda: next_step(adapters, adamw))
    sgd = torch.optim.SGD(small.parameters(), lr=0.1, momentum=0.9)
    train(small, sgd, 1)
    write("sgd", {"model": small.state_dict(), "optimizer": sgd.state_dict()}, expected(named(small)))


def bits() -> None:
    """11. 8-bit state; small params keep float32."""
    import bitsandbytes as bnb

    torch.manual_seed(11)
    model = nn.ModuleDict({"table": nn.Embedding(65, 64), "out": nn.Linear(64, 3)})
    model.loss = lambda: model["out"](model["table"](torch.randint(0, 65, (8,)))).square().mean()  # type: ignore[assignment]
    adamw = bnb.optim.AdamW8bit(model.parameters(), lr=1e-3)
    train(model, adamw, 3)
    values = expected(named(model))
    for name, param in model.named_parameters():
        state = adamw.state[param]
        values[f"t {name}"] = np.float64(state["step"])
        for lane, number in (("m", "1"), ("v", "2")):
            codes = state[f"state{number}"].detach()
            if codes.dtype != torch.uint8:
                values[f"{lane} {name}"] = codes.numpy()
                continue
            whole = bnb.functional.dequantize_blockwise(
                codes, absmax=state[f"absmax{number}"], code=state[f"qmap{number}"], blocksize=256
            )
            values |= {f"{lane} {name}": whole.numpy(), f"{lane}.codes {name}": codes.numpy(),
                       f"{lane}.scales {name}": state[f"absmax{number}"].numpy()}  # fmt: skip
    write("bitsandbytes", {"model": model.state_dict(), "optimizer": adamw.state_dict()}, values)


if __name__ == "__main__":
    bits() if sys.argv[1:] == ["bitsandbytes"] else main()
