"""Writes optax-*.safetensors beside it: AdamW's state as optax 0.2.8 keeps it, flattened in three ways in use.

    python tests/checkpoints/make_optax.py    # with optax, flax and safetensors

What they hold goes to optax.expected.npz, by the names of the params in the module.
"""

from __future__ import annotations

from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import flatten_dict
from safetensors.flax import save_file

FOLDER = Path(__file__).parent


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.LayerNorm()(nn.Embed(5, 4)(x))
        return nn.Dense(3)(nn.relu(nn.Dense(6)(x)))


def main() -> None:
    model = Mlp()
    tokens = jnp.arange(5)
    params = model.init(jax.random.key(0), tokens)["params"]
    schedule = optax.linear_schedule(1e-3, 1e-4, 100)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1, mu_dtype=jnp.bfloat16)
    )
    state = tx.init(params)
    for _ in range(4):
        gradients = jax.grad(lambda p: jnp.mean(model.apply({"params": p}, tokens) ** 2))(params)
        updates, state = tx.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    adam = state[1][0]
    flat = {
        lane: flatten_dict(tree, sep="/") for lane, tree in (("w", params), ("m", adam.mu), ("v", adam.nu))
    }
    np.savez_compressed(
        FOLDER / "optax.expected.npz",
        **{
            f"{lane} {name}": np.asarray(each, np.float32)
            for lane, tree in flat.items()
            for name, each in tree.items()
        },
        count=np.asarray(adam.count),
    )
    # Slashes, as flax.traverse_util.flatten_dict over flax.serialization.to_state_dict gives them.
    from flax.serialization import to_state_dict

    tree = {"params": to_state_dict(params), "opt_state": to_state_dict(state)}
    save_file(flatten_dict(tree, sep="/"), FOLDER / "optax-slashes.safetensors")
    # Dots, in two files.
    dotted = flatten_dict(to_state_dict(state), sep=".")
    save_file(dotted, FOLDER / "optax-dots-state.safetensors")
    save_file(flatten_dict(to_state_dict(params), sep="."), FOLDER / "optax-dots-params.safetensors")
    # As jax.tree_util names the leaves.
    leaves = jax.tree_util.tree_flatten_with_path({"params": params, "opt_state": state})[0]
    named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    save_file(named, FOLDER / "optax-keystr.safetensors")


if __name__ == "__main__":
    main()
