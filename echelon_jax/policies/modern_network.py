"""The `modern` network, made for this game: other mechs as a set, maps embedded, LayerNorm around a memory, factored heads.

Read it in the order of a forward pass: `encode`, `cell`, `act`, `critic`. Only `cell` runs inside a scan over time.

- Slots of one kind share their weights. The embedding of a slot also reads the mech's own numbers. Attention, which at first
  prefers the nearest mech, and the maximum pool the slots; empty slots are left out.
- Each stack of map planes goes through one layer. Planes that an arena's mechs share are embedded once per arena.
- A target's logit is the product of a query with the embedding of its slot, so permuting the slots permutes the choice.
- The critic reads each mech's memory, the mean of its living team mates' memories, and whether it lives. So it has a value for
  a dead mech too, which still gets the game's result.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float32, Key

from echelon_jax.policies.dense import Dense, together
from echelon_jax.policies.distributions import LOG_STD_RANGE
from echelon_jax.policies.factored import MASKED_LOGIT, Factored
from echelon_jax.policies.features import Features, Observation
from echelon_jax.policies.heads import CATEGORICAL, GAUSSIAN, Heads
from echelon_jax.policies.memories import MEMORIES, Memory
from echelon_jax.policies.network import Carry, Params
from echelon_jax.policies.structure import Slots, Structure
from echelon_jax.rules.mechs import CLASS_NAMES, PACK_CLASSES

SETS = (
    "friend",
    "hostile",
    "contact",
)  # groups of slots that are read as sets; other groups are few and sorted, so as numbers
NEAR_GAIN = 2.0  # of a slot's normalised nearness in the attention, at initialisation
MESSAGE_ENTROPY = 0.1
POLICY_GAIN, VALUE_GAIN = 0.01, 1.0  # orthogonal initialisation of the last layers


class ModernModule(nn.Module):
    """The layers, as the text of this module describes them."""

    structure: Structure
    heads: Heads
    hidden: int
    lstm: int
    forget_bias: float
    initial_log_std: float
    layer_norm: bool
    team_critic: bool
    attention: bool
    memory_kind: str

    def setup(self) -> None:
        """Declare the layers: orthogonal kernels, zero biases but the forget gate's."""

        def dense(size: int, gain: float = math.sqrt(2.0), bias: bool = True) -> Dense:
            return Dense(size, nn.initializers.orthogonal(gain), bias)

        self.self_layer = dense(self.hidden)
        groups = self._sets()
        self.slot_layers = [dense(self.slot_width) for _ in groups]
        self.viewer_layers = [dense(self.slot_width, 1.0, bias=False) for _ in groups]
        # Attention that starts even shows the mean of all hostiles, at whom nobody can aim; so it starts at the nearest.
        gain = nn.initializers.constant(NEAR_GAIN)
        tells = [self.attention and group.nearness is not None for group in groups]
        self.near = [self.param(f"near_{i}", gain, ()) if told else None for i, told in enumerate(tells)]
        self.ask_layers = [dense(self.slot_width, 1.0, bias=False) for _ in groups]
        self.plane_layers = [dense(self.plane_width) for _ in self.structure.planes]
        self.shared_layer = dense(self.plane_width)
        self.trunk_layer = dense(self.hidden)
        if self.layer_norm:
            self.norm_before, self.norm_after = nn.LayerNorm(), nn.LayerNorm()

        memory, inputs, width = self._kind(), self.hidden, self.lstm
        self.kernel_memory = self.param(f"{self.memory_kind}_kernel", lambda key: memory.kernel(key, inputs, width))
        self.bias_memory = self.param(f"{self.memory_kind}_bias", lambda key: memory.bias(width, self.forget_bias))

        self.head_layer = dense(sum(self._outputs().values()), POLICY_GAIN)
        self.pointer_layer = dense(self.slot_width, POLICY_GAIN)
        self.value_hidden = dense(self.hidden)
        self.value_layer = dense(1, VALUE_GAIN)

    @property
    def slot_width(self) -> int:
        """Width of a slot's embedding."""
        return max(8, self.hidden // 4)

    @property
    def plane_width(self) -> int:
        """Width of the embedding of a stack of planes."""
        return max(8, self.hidden // 2)

    def _sets(self) -> list[Slots]:
        return [group for group in self.structure.slots if group.name in SETS]

    def _outputs(self) -> dict[str, int]:
        """Outputs of the last policy layer by head; a target's slots have their own."""
        sizes = {}
        for head in self.heads.table:
            sizes[head.name] = 2 * head.size if head.kind == GAUSSIAN else head.size
        sizes["target"] = 1
        return sizes

    # -- Before the memory -------------------------------------------------------------------------------------------------

    def _pool(
        self, i: int, group: Slots, own: Array, viewed: Array, asks: Array | None
    ) -> tuple[Float32[Array, "*batch pooled"], Float32[Array, "*batch slots width"]]:
        rows = own[..., group.start : group.stop].reshape(*own.shape[:-1], group.number, group.width)
        used = rows[..., group.flag] > 0
        embedded = nn.relu(self.slot_layers[i](rows) + viewed[..., None, :])
        embedded = jnp.where(used[..., None], embedded, 0.0)
        if asks is not None:
            # Written as products and sums: a batch of tiny matrix products is slow on a CPU.
            asked = (embedded * asks[..., None, :]).sum(-1) * (1.0 / math.sqrt(self.slot_width))
            near = self.near[i]
            if near is not None:
                asked = asked + near * rows[..., group.nearness]
            # The barrier keeps XLA for GPUs from fusing the softmax with the sum below into a Triton kernel, which it cannot tile.
            weight = jax.lax.optimization_barrier(jax.nn.softmax(jnp.where(used, asked, MASKED_LOGIT), axis=-1))
            pooled = (embedded * weight[..., None]).sum(-2)
        else:
            pooled = embedded.sum(-2) / jnp.maximum(used.sum(-1, keepdims=True, dtype=jnp.float32), 1.0)
        return jnp.concatenate([pooled, embedded.max(-2)], -1), embedded

    def encode(self, observation: Observation) -> tuple[Array, Array, Array]:
        """Return the memory's input, the embeddings of the slots among which a target is chosen, and whether each mech lives."""
        own, structure = observation.own, self.structure
        runs = [*structure.numbers, *((g.start, g.stop) for g in structure.slots if g.name not in SETS)]
        numbers = jnp.concatenate([own[..., start:stop] for start, stop in sorted(runs)], -1)
        me = self._seen("self_layer", nn.relu(self.self_layer(numbers)))
        parts, targets = [me], None
        groups = self._sets()
        read = together(me, *self.viewer_layers, *(self.ask_layers if self.attention else ()))
        for i, group in enumerate(groups):
            asks = read[len(groups) + i] if self.attention else None
            pooled, embedded = self._pool(i, group, own, read[i], asks)
            self._seen(f"slot_layers_{i}", embedded)
            parts.append(pooled)
            if group.name == structure.targets:
                targets = embedded
        assert targets is not None
        for i, (layer, (start, stop)) in enumerate(zip(self.plane_layers, structure.planes, strict=True)):
            parts.append(self._seen(f"plane_layers_{i}", nn.relu(layer(own[..., start:stop]))))
        arena = self._seen("shared_layer", nn.relu(self.shared_layer(observation.shared.astype(jnp.float32))))
        x = self.trunk_layer(jnp.concatenate(parts, -1), arena[..., None, :])
        if self.layer_norm:
            x = self.norm_before(x)
        alive = (own[..., structure.alive[0] : structure.alive[1]] > 0).any(-1)
        return self._seen("trunk_layer", nn.relu(x)), targets, alive

    def _seen(self, name: str, x: Array) -> Array:
        """Hand the output of a ReLU layer on, and keep it for `ModernNetwork.activations` if that asks."""
        self.sow("activations", f"{name}_out", x)  # a name of its own: layers and what they keep share one scope
        return x

    # -- The memory --------------------------------------------------------------------------------------------------------

    def _kind(self) -> Memory:
        return MEMORIES[self.memory_kind]

    def cell(self, carry: Carry, x: Float32[Array, "arenas mechs hidden"], reset: Bool[Array, "arenas mechs"]) -> Carry:
        """Return the memory after reading x; where `reset` it starts from zeros."""
        return self._kind().step(self.kernel_memory, self.bias_memory, carry, x, reset)

    def memory(
        self, carry: Carry, x: Float32[Array, "time arenas mechs hidden"], reset: Bool[Array, "time arenas mechs"]
    ) -> tuple[Carry, Float32[Array, "time arenas mechs lstm"]]:
        """Return the memory after a stored sequence, and the hidden state of every step."""
        return self._kind().sequence(self.kernel_memory, self.bias_memory, carry, x, reset)

    # -- After it ----------------------------------------------------------------------------------------------------------

    def act(
        self, h: Float32[Array, "*batch mechs lstm"], targets: Array, action_mask: Bool[Array, "*batch mechs mask"]
    ) -> tuple[Factored, Array]:
        """Return the distribution over raw actions, and the memory as the critic reads it."""
        y = self.norm_after(h) if self.layer_norm else h
        sizes = self._outputs()
        joined, pointer = together(y, self.head_layer, self.pointer_layer)
        flat = jnp.split(joined, list(accumulate(sizes.values()))[:-1], -1)
        outputs, log_stds = {}, {}
        low, high = LOG_STD_RANGE
        share = (self.initial_log_std - low) / (high - low)
        middle = math.log(min(max(share, 1e-3), 1 - 1e-3) / (1 - min(max(share, 1e-3), 1 - 1e-3)))
        for name, part in zip(sizes, flat, strict=True):
            kind = self.heads[name].kind
            if kind == GAUSSIAN:
                mean, spread = jnp.split(part, 2, -1)
                outputs[name] = mean
                # Always inside its range, with a gradient everywhere.
                log_stds[name] = low + (high - low) * nn.sigmoid(spread + middle)
            elif name == "target":
                pointed = (targets * pointer[..., None, :]).sum(-1)
                outputs[name] = jnp.concatenate([part, pointed], -1)
            else:
                assert kind == CATEGORICAL or part.shape[-1] == len(self.heads.triggers)
                outputs[name] = part
        return Factored(self.heads, outputs, log_stds, action_mask), y

    def critic(self, *view: Float32[Array, "... _"]) -> Float32[Array, "*batch mechs"]:
        """Return the value of every mech, dead or alive, in units of the return statistics, from the parts of its view."""
        return self.value_layer(nn.relu(self.value_hidden(*view)))[..., 0]

    def everything(self, carry: Carry, observation: Observation, reset: Bool[Array, "arenas mechs"]) -> Any:
        """Run one step of all layers."""
        x, targets, alive = self.encode(observation)
        carry = self.cell(carry, x, reset)
        assert observation.action_mask is not None
        distribution, y = self.act(carry.h, targets, observation.action_mask)
        return carry, distribution, self.critic(*(team_view(y, alive) if self.team_critic else (y,)))


def team_view(
    y: Float32[Array, "*batch mechs lstm"], alive: Bool[Array, "*batch mechs"]
) -> tuple[Float32[Array, "*batch mechs lstm"], Float32[Array, "*batch 1 lstm"], Float32[Array, "*batch mechs 1"]]:
    """Return what the team critic reads: a mech's memory, the mean memory of the team's living mechs, and whether it lives."""
    lives = alive[..., None].astype(jnp.float32)
    total = sum(jnp.split(y * lives, y.shape[-2], -2))  # a sum over an axis of five is slow on a CPU
    living = total / jnp.maximum(lives.sum(-2, keepdims=True), 1.0)
    return y, living, lives


@dataclasses.dataclass(frozen=True)
class ModernNetwork:
    """The network as plain functions of `params`; frozen and hashable. Same interface as `OriginalNetwork`.

    Attributes:
        features: how to read an observation, with heads.
        structure: the parts of an observation.
        hidden, lstm: widths of the encoder and of the memory.
        forget_bias: bias of the gate that keeps what is remembered, at initialisation.
        initial_log_std: log of the Gaussians' spread at initialisation.
        layer_norm, team_critic, attention: whether to use these parts; leaving one out serves comparisons.
        class_networks: whether each mech class has its own parameters; every leaf then has a leading axis of classes.
        memory: kind of memory, a name in policies/memories.py.
    """

    features: Features
    structure: Structure
    hidden: int = 128
    lstm: int = 128
    forget_bias: float = 1.0
    initial_log_std: float = -0.5
    layer_norm: bool = True
    team_critic: bool = True
    attention: bool = True
    class_networks: bool = False
    memory: str = "mingru"

    @property
    def heads(self) -> Heads:
        """The action heads."""
        assert self.features.heads is not None
        return self.features.heads

    @property
    def head_names(self) -> tuple[str, ...]:
        """Names of the heads in order."""
        return self.heads.names

    @property
    def entropy_weights(self) -> tuple[float, ...]:
        """Weight of each head's entropy in the loss. Messages count little, because no reward depends on them directly."""
        return tuple(MESSAGE_ENTROPY if name == "message" else 1.0 for name in self.head_names)

    @property
    def entropy_units(self) -> tuple[float, ...]:
        """Every head's entropy is scaled so that an even choice has 1."""
        return (1.0,) * len(self.heads.table)

    @property
    def values_the_dead(self) -> bool:
        """Whether the critic has a meaningful value for a dead mech."""
        return self.team_critic

    @property
    def memory_reads_itself(self) -> bool:
        """Whether the memory's gates read what it remembers, so that every step has a product of its own."""
        return MEMORIES[self.memory].reads_itself

    @property
    def module(self) -> ModernModule:
        """The linen module."""
        return ModernModule(
            self.structure,
            self.heads,
            self.hidden,
            self.lstm,
            self.forget_bias,
            self.initial_log_std,
            self.layer_norm,
            self.team_critic,
            self.attention,
            self.memory,
        )

    def init(self, key: Key[Array, ""]) -> Params:
        """Return fresh parameters."""
        observation = Observation(
            jnp.zeros((1, 1, self.features.own_size), jnp.float32),
            jnp.zeros((1, self.features.shared_size), jnp.uint8),
            jnp.ones((1, 1, self.heads.mask_size), bool),
        )
        carry, never = self.initial_carry(1, 1), jnp.zeros((1, 1), bool)

        def one(key: Key[Array, ""]) -> Params:
            return self.module.init(key, carry, observation, never, method="everything")["params"]

        return jax.vmap(one)(jax.random.split(key, len(CLASS_NAMES))) if self.class_networks else one(key)

    def initial_carry(self, arenas: int, mechs: int) -> Carry:
        """Return the memory at the start of an episode: zeros."""
        shape = (arenas, mechs, self.lstm)
        return Carry(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))

    def apply(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "arenas mechs"]
    ) -> tuple[Carry, Factored, Float32[Array, "arenas mechs"]]:
        """Run one decision. `reset` is the previous done: it is true where an episode began with this observation."""
        if not self.class_networks:
            return self._call("everything", params, carry, observation, reset)
        x, targets, alive = self._encode(params, observation)
        carry = self._rows("cell", params, 1, carry, x, reset)
        return carry, *self._after(params, carry.h, targets, alive, observation.action_mask)

    def unroll(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> tuple[Factored, Float32[Array, "time arenas mechs"]]:
        """Run a stored sequence from its first memory. It gives what `apply` gives step by step, with only the memory in a scan."""
        x, targets, alive = self._encode(params, observation)
        h = self._memory(params, carry, x, reset)[1]
        return self._after(params, h, targets, alive, observation.action_mask)

    def final_carry(
        self, params: Params, carry: Carry, observation: Observation, reset: Bool[Array, "time arenas mechs"]
    ) -> Carry:
        """Return the memory after a stored sequence."""
        x, _, _ = self._encode(params, observation)
        return self._memory(params, carry, x, reset)[0]

    def _call(self, method: str, params: Params, *inputs: Any) -> Any:
        return self.module.apply({"params": params}, *inputs, method=method)

    def _encode(self, params: Params, observation: Observation) -> tuple[Array, Array, Array]:
        own, shared = observation.own, observation.shared
        lead = own.ndim - 2
        return self._by_class(lambda p, rows: self._call("encode", p, Observation(rows, shared)), params, lead, own)

    def _memory(self, params: Params, carry: Carry, x: Array, reset: Array) -> tuple[Carry, Array]:
        """The memory after a sequence, and every hidden state."""

        # With an axis of time in front, the mechs of a memory are axis 2 as those of the inputs are.
        def of(params: Params, x: Array, reset: Array, carry: Carry) -> tuple[Carry, Array]:
            first = jax.tree.map(lambda leaf: leaf[0], carry)
            last, h = self._call("memory", params, first, x, reset)
            return jax.tree.map(lambda leaf: leaf[None], last), h

        last, h = self._by_class(of, params, 2, x, reset, jax.tree.map(lambda leaf: leaf[None], carry))
        return jax.tree.map(lambda leaf: leaf[0], last), h

    def _after(
        self, params: Params, h: Array, targets: Array, alive: Array, action_mask: Any
    ) -> tuple[Factored, Array]:
        distribution, y = self._rows("act", params, h.ndim - 2, h, targets, action_mask)
        view: tuple[Array, ...] = team_view(y, alive) if self.team_critic else (y,)
        if self.class_networks:  # the mechs of a class are taken from every part
            view = tuple(jnp.broadcast_to(part, (*y.shape[:-1], part.shape[-1])) for part in view)
        return distribution, self._rows("critic", params, h.ndim - 2, *view)

    def _rows(self, method: str, params: Params, lead: int, *inputs: Any) -> Any:
        return self._by_class(lambda p, *rows: self._call(method, p, *rows), params, lead, *inputs)

    def _by_class(self, function: Any, params: Params, lead: int, *inputs: Any) -> Any:
        """Return function(params, *inputs); with class networks once per class, on the mechs (axis `lead`) of that class."""
        if not self.class_networks:
            return function(params, *inputs)
        mechs = jax.tree.leaves(inputs)[0].shape[lead]
        classes = np.resize(np.asarray(PACK_CLASSES), mechs)  # team rows are whole packs in order
        order, parts = [], []
        for mech_class in sorted(set(PACK_CLASSES)):
            rows = np.flatnonzero(classes == mech_class)
            order.append(rows)
            own = jax.tree.map(lambda leaf, c=mech_class: leaf[c], params)
            parts.append(function(own, *jax.tree.map(lambda x, r=rows: jnp.take(x, r, axis=lead), inputs)))
        back = np.argsort(np.concatenate(order))
        return jax.tree.map(lambda *x: jnp.take(jnp.concatenate(x, lead), back, axis=lead), *parts)

    def clip_params(self, params: Params) -> Params:
        """Return the parameters unchanged, because none has a range."""
        return params

    def activations(self, params: Params, observation: Observation) -> dict[str, Array]:
        """Return the outputs of the ReLU layers before the memory by layer; none with class networks, which are five networks."""
        if self.class_networks:
            return {}
        kept = self.module.apply({"params": params}, observation, method="encode", mutable=["activations"])[1]
        return {name.removesuffix("_out"): x for name, (x,) in kept["activations"].items()}

    def gradient_parts(self, grads: Params) -> dict[str, Params]:
        """Return the parts of a gradient by layer; the last policy layer is split by head, as `head/throttle`."""
        parts = {name: tree for name, tree in grads.items() if name not in ("head_layer", "pointer_layer")}
        first = 0
        for name, size in self.module._outputs().items():
            own = slice(first, first + size)
            parts[f"head/{name}"] = jax.tree.map(lambda x, own=own: x[..., own], grads["head_layer"])
            first += size
        parts["head/target"] = (parts["head/target"], grads["pointer_layer"])
        return parts
