"""A trained Echelon policy in PyTorch. One file that needs torch and safetensors only: copy it into any project.

    policy = load_policy("policy.safetensors", device="cpu")   # reads policy.json beside it; strict
    state = policy.initial_state(5)                            # the memory: (h, c), [5, lstm] each, zeros
    acted = policy.act(observation, state, done)               # observation [5, obs], done [5]
    environment.step(acted.action); state = acted.state        # action [5, actions] in [-1, 1]

A row is one mech, and the rows of a call are the mechs of one team. For many teams at once everything has a leading axis:
observation [arenas, mechs, obs], `initial_state(arenas, mechs)`. What a mech does depends on its own row alone, so you may leave
out any mech of the team. Only the value of the `modern` network reads the other rows of the team: a mech that is left out is
missing from it, and a single row is valued as if it were alone. `done` is true where an episode began with this observation;
that row starts from an empty memory. The observation is the environment's own. The normaliser and the action mask are inside.

Each row reads its own map planes. In training, a team reads the planes that it shares from whoever lives, so a dead mech, whose
observation is zero, gets them too. Here it does not, so its outputs differ. Nobody uses them.

`load_policy` also reads a `.pt` file in the original Echelon's format. Run as a script, this file checks a policy against the
numbers that its writer stored with it:

    python torch_policy.py policy.safetensors
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

FORMAT = 2
KIND = "echelon policy"
SQUASH_EPSILON = 1e-6  # actions from elsewhere are clamped this far inside (-1, 1)
MASKED = -1e4  # logit of a masked choice
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class PolicyError(Exception):
    """A policy file could not be read or used; the message is one sentence."""


class State(NamedTuple):
    """The memory of every row, torch order: hidden [*rows, lstm] and cell [*rows, lstm]."""

    h: Tensor
    c: Tensor


class Acted(NamedTuple):
    """What `act` returns; `*rows` are the leading axes of the observation.

    Attributes:
        action: [*rows, actions] in [-1, 1].
        log_prob: [*rows], log-prob of the action (of the heads together).
        value: [*rows], in the critic's units: (return - mean) / deviation.
        state: the memory after this observation.
        raw_action: [*rows, actions] before tanh, or the heads' choices [*rows, raw].
    """

    action: Tensor
    log_prob: Tensor
    value: Tensor
    state: State
    raw_action: Tensor


class BasePolicy(nn.Module):
    """The common part of both networks: sizes, a card, an observation normaliser, and `act`.

    The normaliser is x' = clamp((x - shift) / scale, -limit, limit). The limit is infinite for features that are not clipped.
    """

    network: str
    head_outputs: tuple[str, ...]  # what `forward` returns before value, h and c
    card: dict[str, Any]  # of the file it was loaded from
    dimensions: dict[str, Any]
    observation_shift: Tensor
    observation_scale: Tensor
    observation_limit: Tensor

    def _add_normaliser(self, size: int) -> None:
        self.register_buffer("observation_shift", torch.zeros(size))
        self.register_buffer("observation_scale", torch.ones(size))
        self.register_buffer("observation_limit", torch.full((size,), math.inf))

    def _normalised(self, observation: Tensor) -> Tensor:
        x = (observation - self.observation_shift) / self.observation_scale
        return torch.minimum(torch.maximum(x, -self.observation_limit), self.observation_limit)

    def initial_state(self, *rows: int) -> State:
        """Return the memory at the start of an episode."""
        zeros = self.observation_shift.new_zeros(*rows, self.dimensions["lstm"])
        return State(zeros, zeros.clone())

    def choose(self, heads: Sequence[Tensor], deterministic: bool, generator: torch.Generator | None) -> Tensor:
        """Draw a raw action, or return the likeliest one if `deterministic`."""
        raise NotImplementedError

    def action_of(self, raw_action: Tensor) -> Tensor:
        """Return the environment's action [*rows, actions] of a raw action."""
        raise NotImplementedError

    def log_prob_of(self, heads: Sequence[Tensor], raw_action: Tensor) -> Tensor:
        """Return the log-prob [*rows] of a raw action's action."""
        raise NotImplementedError

    def _check(self, observation: Tensor) -> None:
        size = self.dimensions["observation"]
        if observation.ndim < 2 or observation.shape[-1] != size:
            raise ValueError(
                f"observation must have shape [mechs, {size}] or [arenas, mechs, {size}], got {list(observation.shape)}"
            )

    @torch.no_grad()
    def act(
        self,
        observation: Tensor,
        state: State | None = None,
        done: Tensor | None = None,
        *,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> Acted:
        """Choose actions: drawn ones, or the means and the likeliest choices if `deterministic`.

        Args:
            observation: [mechs, obs] of one team or [arenas, mechs, obs].
            state: None for an empty memory. done: None for no boundary.
            generator: generator of the draws, on the policy's device; None for torch's global one.

        Raises:
            ValueError: an observation of another shape.
        """
        self._check(observation)
        rows = observation.shape[:-1]
        h, c = self.initial_state(*rows) if state is None else state
        if done is None:
            done = torch.zeros(rows, dtype=torch.bool, device=observation.device)
        *heads, value, h, c = self(observation, h, c, done)
        raw_action = self.choose(heads, deterministic, generator)
        return Acted(self.action_of(raw_action), self.log_prob_of(heads, raw_action), value, State(h, c), raw_action)


class LSTMCell(nn.Module):
    """One LSTM layer with the parameters of `torch.nn.LSTM`; rows of the matrices in the order i, f, g, o.

    It is written out, because then it exports to other formats as a handful of plain operators.
    """

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.weight_ih_l0 = nn.Parameter(torch.zeros(4 * size, inputs))
        self.weight_hh_l0 = nn.Parameter(torch.zeros(4 * size, size))
        self.bias_ih_l0 = nn.Parameter(torch.zeros(4 * size))
        self.bias_hh_l0 = nn.Parameter(torch.zeros(4 * size))

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c after reading x."""
        gates = x @ self.weight_ih_l0.T + self.bias_ih_l0 + h @ self.weight_hh_l0.T + self.bias_hh_l0
        i, f, g, o = gates.chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class MinGRUCell(nn.Module):
    """One minGRU layer (Feng et al. 2024): rows of the matrix are those of what is kept, then of what is new."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * size, inputs))
        self.bias = nn.Parameter(torch.zeros(2 * size))

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return h, what the heads read, and the state c after reading x; gates read x alone."""
        kept, new = (x @ self.weight.T + self.bias).chunk(2, -1)
        keep = torch.sigmoid(kept)
        c = keep * c + (1.0 - keep) * new
        return c + new, c


def _begun(done: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Return the memory with zeros where an episode begins."""
    begin = done.bool()[..., None]
    return torch.where(begin, torch.zeros_like(h), h), torch.where(begin, torch.zeros_like(c), c)


# -- The original network ---------------------------------------------------------------------------------------------


class OriginalPolicy(BasePolicy):
    """The network of the original's ActorCriticLSTM behind an observation normaliser.

    The state dictionary has the original's thirteen entries, and three for the normaliser.

    Args:
        observation, action: entries of an observation and of an action.
        hidden, lstm: widths of the encoder and of the memory.
    """

    network = "original"
    head_outputs = ("mean", "log_std")
    shared = (0, 0)

    def __init__(self, observation: int, action: int, hidden: int = 128, lstm: int = 128) -> None:
        super().__init__()
        self.dimensions = {"observation": observation, "action": action, "hidden": hidden, "lstm": lstm}
        self.actor_logstd = nn.Parameter(torch.zeros(action))
        self.encoder = nn.Sequential(nn.Linear(observation, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.lstm = LSTMCell(hidden, lstm)
        self.actor_mean = nn.Linear(lstm, action)
        self.critic = nn.Linear(lstm, 1)
        self._add_normaliser(observation)

    def forward(
        self, observation: Tensor, h: Tensor, c: Tensor, done: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Run one decision.

        Args:
            observation: [*rows, observation].
            h, c: the memory, [*rows, lstm] each.
            done: [*rows], bool or 0 and 1.

        Returns:
            mean [*rows, actions] before tanh, log-std [*rows, actions], value [*rows], and the new h and c.
        """
        x = self._normalised(observation.to(self.actor_logstd.dtype))
        h, c = self.lstm(self.encoder(x), *_begun(done, h, c))
        mean = self.actor_mean(h)
        return mean, self.actor_logstd.expand_as(mean), self.critic(h)[..., 0], h, c

    def choose(self, heads: Sequence[Tensor], deterministic: bool, generator: torch.Generator | None) -> Tensor:
        """Return the action before tanh: a draw, or the mean."""
        mean, log_std = heads
        return mean if deterministic else mean + log_std.exp() * _normal(mean, generator)

    def action_of(self, raw_action: Tensor) -> Tensor:
        """Return tanh of a raw action."""
        return torch.tanh(raw_action)

    def log_prob_of(self, heads: Sequence[Tensor], raw_action: Tensor) -> Tensor:
        """Return the log-prob [*rows] of the action tanh(raw_action)."""
        return log_prob(heads[0], heads[1], raw_action)


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def log_det(raw_action: Tensor) -> Tensor:
    """Return log(1 - tanh(raw_action)^2), finite for every finite raw action."""
    return 2.0 * (math.log(2.0) - raw_action - torch.logaddexp(-2.0 * raw_action, torch.zeros_like(raw_action)))


def gaussian_log_prob(mean: Tensor, log_std: Tensor, raw_action: Tensor) -> Tensor:
    """Return the log-prob of each component of a Gaussian sample."""
    z = (raw_action - mean) * torch.exp(-log_std)
    return -(0.5 * z * z + log_std + _HALF_LOG_TWO_PI)


def log_prob(mean: Tensor, log_std: Tensor, raw_action: Tensor) -> Tensor:
    """Return the log-prob [*rows] of the action tanh(raw_action); finite for every finite raw action."""
    return (gaussian_log_prob(mean, log_std, raw_action) - log_det(raw_action)).sum(-1)


def raw_action_of(action: Tensor) -> Tensor:
    """Return the raw action of an action; components are clamped to 1e-6 inside (-1, 1) first."""
    inside = action.clamp(-1.0 + SQUASH_EPSILON, 1.0 - SQUASH_EPSILON)
    return 0.5 * (torch.log1p(inside) - torch.log1p(-inside))


# -- The modern network -----------------------------------------------------------------------------------------------


class Norm(nn.Module):
    """LayerNorm over the last axis; the variance is the mean of squares minus the square of the mean."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows with mean 0 and deviation 1, scaled and shifted."""
        mean = x.mean(-1, keepdim=True)
        variance = ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0.0)
        return (x - mean) * (torch.rsqrt(variance + 1e-6) * self.weight) + self.bias


class MaskRules(nn.Module):
    """The action mask of a row, from its raw observation, by rules that the card states as numbers.

    A rule is a list of alternatives, and an alternative is a list of conditions. A condition is ["any", entries] (one of the
    entries is above 0), ["none", entries] (none is) or ["at_most", entry, limit]. A rule holds if all conditions of one of its
    alternatives hold. The tables are products of matrices of 0 and 1, so hundreds of rules are five operators.
    """

    entries: Tensor
    any_of: Tensor
    negated: Tensor
    timed: Tensor
    limits: Tensor
    needs: Tensor
    count: Tensor
    gives: Tensor

    def __init__(self, rules: Sequence[Sequence[Sequence[Sequence[Any]]]]) -> None:
        super().__init__()
        alternatives = [(i, [_frozen(c) for c in conditions]) for i, rule in enumerate(rules) for conditions in rule]
        known = {c: None for _, conditions in alternatives for c in conditions}
        said = [c for c in known if c[0] in ("any", "none")]
        timed = [c for c in known if c[0] == "at_most"]
        if len(said) + len(timed) != len(known):
            raise ValueError("a condition must be any, none or at_most")
        order = {c: i for i, c in enumerate((*said, *timed))}
        entries = sorted({entry for c in said for entry in c[1]})
        any_of = torch.tensor([[float(entry in c[1]) for c in said] for entry in entries]).reshape(
            len(entries), len(said)
        )
        needs = torch.zeros(len(order), len(alternatives))
        gives = torch.zeros(len(alternatives), len(rules))
        for j, (rule, conditions) in enumerate(alternatives):
            gives[j, rule] = 1.0
            for c in conditions:
                needs[order[c], j] = 1.0
        for name, tensor in (
            ("entries", torch.tensor(entries, dtype=torch.long)),
            ("any_of", any_of),
            ("negated", torch.tensor([c[0] == "none" for c in said])),
            ("timed", torch.tensor([c[1] for c in timed], dtype=torch.long)),
            ("limits", torch.tensor([c[2] for c in timed])),
            ("needs", needs),
            ("count", needs.sum(0)),
            ("gives", gives),
        ):
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Return bool [*rows, rules] from observations in the policy's dtype."""
        dtype = self.needs.dtype
        above = torch.index_select(observation, -1, self.entries) > 0
        holds = ((above.to(dtype) @ self.any_of) > 0.5) ^ self.negated
        if len(self.timed):
            soon = torch.index_select(observation, -1, self.timed) <= self.limits
            holds = torch.cat([holds, soon], -1)
        met = holds.to(dtype) @ self.needs > self.count - 0.5
        return met.to(dtype) @ self.gives > 0.5


def _frozen(condition: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(part) if isinstance(part, (list, tuple)) else part for part in condition)


class ModernLayers(nn.Module):
    """The layers of the modern network, in the order of a pass: `encode`, `remember`, `act`, `critic`."""

    def __init__(self, dimensions: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        super().__init__()
        self.dimensions, self.plan = dimensions, plan
        hidden, lstm, slot, plane = (dimensions[name] for name in ("hidden", "lstm", "slot_width", "plane_width"))
        sets, planes = plan["sets"], plan["planes"]
        self.self_layer = nn.Linear(sum(stop - start for start, stop in plan["numbers"]), hidden)
        self.slot_layers = nn.ModuleList(nn.Linear(group["width"], slot) for group in sets)
        self.viewer_layers = nn.ModuleList(nn.Linear(hidden, slot, bias=False) for _ in sets)
        asks = sets if dimensions["attention"] else []
        self.ask_layers = nn.ModuleList(nn.Linear(hidden, slot, bias=False) for _ in asks)
        near = [group for group in asks if group["nearness"] is not None]
        self.near = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in near)
        self.plane_layers = nn.ModuleList(nn.Linear(stop - start, plane) for start, stop in planes)
        self.shared_layer = nn.Linear(plan["shared"][1], plane)
        self.trunk_layer = nn.Linear(hidden + 2 * slot * len(sets) + plane * (len(planes) + 1), hidden)
        self.norm_before: nn.Module = Norm(hidden) if dimensions["layer_norm"] else nn.Identity()
        self.norm_after: nn.Module = Norm(lstm) if dimensions["layer_norm"] else nn.Identity()
        if dimensions["memory"] == "lstm":
            self.lstm = LSTMCell(hidden, lstm)
        else:
            self.memory = MinGRUCell(hidden, lstm)
        self.head_layer = nn.Linear(lstm, sum(self._width(head) for head in plan["heads"]))
        self.pointer_layer = nn.Linear(lstm, slot)
        self.value_hidden = nn.Linear(2 * lstm + 1 if dimensions["team_critic"] else lstm, hidden)
        self.value_layer = nn.Linear(hidden, 1)

    @staticmethod
    def _width(head: Mapping[str, Any]) -> int:
        """Outputs of the last layer for a head: mean and spread, or logits; a target's slots have their own."""
        if head["kind"] == "gaussian":
            return 2 * head["size"]
        return 1 if head["name"] == "target" else head["size"]

    def _pooled(self, i: int, own: Tensor, me: Tensor) -> tuple[Tensor, Tensor]:
        """One set as a row, and the embeddings of its slots."""
        group = self.plan["sets"][i]
        size = group["number"] * group["width"]
        rows = own[..., group["start"] : group["start"] + size].unflatten(-1, (group["number"], group["width"]))
        used = rows[..., group["flag"]] > 0
        embedded = torch.relu(self.slot_layers[i](rows) + self.viewer_layers[i](me)[..., None, :])
        embedded = torch.where(used[..., None], embedded, torch.zeros_like(embedded))
        if self.dimensions["attention"]:
            asked = (embedded * self.ask_layers[i](me)[..., None, :]).sum(-1)
            asked = asked * (1.0 / math.sqrt(self.dimensions["slot_width"]))
            if group["nearness"] is not None:
                asked = asked + self.near[i] * rows[..., group["nearness"]]
            weight = torch.softmax(_masked(asked, used), -1)
            pooled = (embedded * weight[..., None]).sum(-2)
        else:
            pooled = embedded.sum(-2) / used.sum(-1, keepdim=True).to(own.dtype).clamp(min=1.0)
        return torch.cat([pooled, embedded.amax(-2)], -1), embedded

    def encode(self, own: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input of the memory, and the embeddings of the slots among which a target is chosen."""
        plan = self.plan
        me = torch.relu(self.self_layer(torch.cat([own[..., a:b] for a, b in plan["numbers"]], -1)))
        pooled = [self._pooled(i, own, me) for i in range(len(plan["sets"]))]
        parts = [me, *(row for row, _ in pooled)]
        for layer, (a, b) in zip(self.plane_layers, plan["planes"]):
            parts.append(torch.relu(layer(own[..., a:b])))
        parts.append(torch.relu(self.shared_layer(shared)))
        read = torch.relu(self.norm_before(self.trunk_layer(torch.cat(parts, -1))))
        return read, pooled[[group["name"] for group in plan["sets"]].index(plan["targets"])][1]

    def remember(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return the memory h and c after reading x."""
        return (self.lstm if self.dimensions["memory"] == "lstm" else self.memory)(x, h, c)

    def act(self, h: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs of all heads, the log-std of the Gaussian ones, and the memory as the critic reads it."""
        y = self.norm_after(h)
        low, high, middle = self.plan["log_std"]
        outputs, log_stds = [], []
        parts = self.head_layer(y).split([self._width(head) for head in self.plan["heads"]], -1)
        for head, part in zip(self.plan["heads"], parts):
            if head["kind"] == "gaussian":
                part, spread = part.chunk(2, -1)
                log_stds.append(low + (high - low) * torch.sigmoid(spread + middle))
            elif head["name"] == "target":
                part = torch.cat([part, (targets * self.pointer_layer(y)[..., None, :]).sum(-1)], -1)
            outputs.append(part)
        return torch.cat(outputs, -1), torch.cat(log_stds, -1), y

    def critic(self, view: Tensor) -> tuple[Tensor]:
        """Return the value of every row."""
        return (self.value_layer(torch.relu(self.value_hidden(view))),)


class ModernPolicy(BasePolicy):
    """Other mechs as sets, maps embedded, a memory between LayerNorms, factored heads with masks, a critic that sees the team.

    `plan` describes the parts of an observation and of an action in plain numbers from the card:

    - `shared`: start and number of the entries of the map planes that a team's mechs see alike. The rest is the mech's own part.
    - `numbers`, `planes`, `alive`: runs (start, stop) in the own part; `sets`: its groups of slots.
    - `heads`: their columns in raw actions and in action masks; `log_std`: low, high and middle of its range before the squash.
    - `mask_rules`: see MaskRules; `action`: see `action_of`.
    - `classes`: a rule per class that says whether a row is of that class, if each mech class has layers of its own. A dead mech
      is of none and gets the first layers; nobody uses its outputs.

    The outputs of all heads lie in one row, in the columns of the action mask: means, and logits of triggers and choices.

    Args:
        observation, action: entries of an observation and of an action.
        hidden, lstm: widths of the encoder and of the memory.
        slot_width, plane_width: widths of the embeddings of a slot and of a stack of planes.
        mechs: mechs of a team.
        layer_norm, team_critic, attention: whether the network has these parts.
        memory: `lstm`, as cards have it that do not say, or `mingru`.

    Raises:
        ValueError: another memory.
    """

    network = "modern"
    head_outputs = ("output", "log_std", "action_mask")

    def __init__(
        self,
        observation: int,
        action: int,
        hidden: int,
        lstm: int,
        slot_width: int,
        plane_width: int,
        mechs: int,
        layer_norm: bool,
        team_critic: bool,
        attention: bool,
        plan: Mapping[str, Any],
        memory: str = "lstm",
    ) -> None:
        super().__init__()
        if memory not in ("lstm", "mingru"):
            raise ValueError(f"memory must be lstm or mingru, got {memory!r}")
        self.dimensions = {"observation": observation, "action": action, "hidden": hidden, "lstm": lstm}
        self.dimensions |= {"slot_width": slot_width, "plane_width": plane_width, "mechs": mechs}
        self.dimensions |= {"layer_norm": layer_norm, "team_critic": team_critic, "attention": attention}
        self.dimensions["memory"] = memory
        self.plan, self.heads = plan, list(plan["heads"])
        self.mask_rules, self.classes = MaskRules(plan["mask_rules"]), MaskRules(plan["classes"])
        self.layers = nn.ModuleList(ModernLayers(self.dimensions, plan) for _ in plan["classes"])
        self._add_normaliser(observation)

    @property
    def shared(self) -> Sequence[int]:
        """Start and number of the entries that a team sees alike."""
        return self.plan["shared"]

    def _check(self, observation: Tensor) -> None:
        super()._check(observation)
        mechs = self.dimensions["mechs"]
        if observation.shape[-2] > mechs:
            raise ValueError(
                f"the rows of a call are one team of at most {mechs} mechs, got {observation.shape[-2]}; "
                "give many teams as [arenas, mechs, observation]"
            )

    # -- A decision ----------------------------------------------------------------------------------------------------

    def forward(
        self, observation: Tensor, h: Tensor, c: Tensor, done: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Run one decision.

        Args:
            observation: [*arenas, mechs, observation]; the mechs are of one team.
            h, c: the memory, [*arenas, mechs, lstm] each.
            done: [*arenas, mechs], bool or 0 and 1.

        Returns:
            outputs of all heads [*arenas, mechs, mask], log-std of the Gaussian ones, one after the other, bool action mask
            [*arenas, mechs, mask], value [*arenas, mechs], and the new h and c.
        """
        observation = observation.to(self.observation_shift.dtype)
        x, start, stop = self._normalised(observation), self.shared[0], sum(self.shared)
        own = torch.cat([x[..., :start], x[..., stop:]], -1)
        which = self.classes(observation) if len(self.layers) > 1 else None
        read, targets = self._by_class(which, "encode", own, x[..., start:stop])
        h, c = self._by_class(which, "remember", read, *_begun(done, h, c))
        output, log_std, y = self._by_class(which, "act", h, targets)
        if self.dimensions["team_critic"]:  # a row's memory, the mean of the living team mates', whether it lives
            lives = (own[..., slice(*self.plan["alive"])] > 0).any(-1, keepdim=True).to(y.dtype)
            living = (y * lives).sum(-2, keepdim=True) / lives.sum(-2, keepdim=True).clamp(min=1.0)
            y = torch.cat([y, living.expand_as(y), lives], -1)
        (value,) = self._by_class(which, "critic", y)
        return output, log_std, self.mask_rules(observation), value[..., 0], h, c

    def _by_class(self, which: Tensor | None, stage: str, *inputs: Tensor) -> tuple[Tensor, ...]:
        """A stage by the layers of each row's class."""
        made = [getattr(layers, stage)(*inputs) for layers in self.layers]
        chosen = made[0]
        for i, other in enumerate(made[1:], 1):
            assert which is not None
            mine = [which[..., i][(..., *[None] * (x.ndim - which.ndim + 1))] for x in other]
            chosen = tuple(torch.where(m, new, old) for m, new, old in zip(mine, other, chosen))
        return chosen

    # -- The distribution ----------------------------------------------------------------------------------------------

    def parts(self, heads: Sequence[Tensor]) -> dict[str, tuple[Tensor, Tensor | None, Tensor]]:
        """Return by head its outputs, its log-std (Gaussians only) and its action mask."""
        output, log_std, action_mask = heads
        found: dict[str, tuple[Tensor, Tensor | None, Tensor]] = {}
        first = 0
        for head in self.heads:
            columns, spread = slice(*head["action_mask"]), None
            if head["kind"] == "gaussian":
                spread = log_std[..., first : first + head["size"]]
                first += head["size"]
            found[head["name"]] = (output[..., columns], spread, action_mask[..., columns])
        return found

    def choose(self, heads: Sequence[Tensor], deterministic: bool, generator: torch.Generator | None) -> Tensor:
        """Draw a raw action [*rows, samples], masked components are 0 and masked choices are never drawn."""
        drawn = []
        for head, (output, log_std, action_mask) in zip(self.heads, self.parts(heads).values()):
            if log_std is not None:
                x = output if deterministic else output + log_std.exp() * _normal(output, generator)
                drawn.append(torch.where(action_mask, x, torch.zeros_like(x)))
            elif head["kind"] == "bernoulli":
                pressed = output > 0 if deterministic else _uniform(output, generator) < torch.sigmoid(output)
                drawn.append((pressed & action_mask).to(output.dtype))
            else:
                score = _masked(output, action_mask)
                if not deterministic:
                    score = score - torch.log(-torch.log(_uniform(output, generator)))  # Gumbel: a draw by a maximum
                drawn.append(score.argmax(-1, keepdim=True).to(output.dtype))
        return torch.cat(drawn, -1)

    def head_action_log_prob(self, heads: Sequence[Tensor], raw_action: Tensor) -> Tensor:
        """Return each head's log-probability [*rows, heads] of a raw action; masked components take no part."""
        each = []
        for head, (output, log_std, action_mask) in zip(self.heads, self.parts(heads).values()):
            x = raw_action[..., slice(*head["raw_action"])]
            if head["kind"] == "categorical":
                each.append(torch.log_softmax(_masked(output, action_mask), -1).gather(-1, x.long())[..., 0])
                continue
            if log_std is not None:
                density = gaussian_log_prob(output, log_std, x) - log_det(x)
            else:
                density = x * output - torch.logaddexp(output, torch.zeros_like(output))
            each.append(torch.where(action_mask, density, torch.zeros_like(density)).sum(-1))
        return torch.stack(each, -1)

    def log_prob_of(self, heads: Sequence[Tensor], raw_action: Tensor) -> Tensor:
        """Return the log-probability [*rows] of a raw action's action, all heads together."""
        return self.head_action_log_prob(heads, raw_action).sum(-1)

    def action_of(self, raw_action: Tensor) -> Tensor:
        """Return the environment's action of a raw action: the parts of the plan's `action` one after the other.

        Kinds: `tanh` of Gaussians; `sign`, 1 for a pressed trigger, else -1; `choice`, `on` for the chosen one of the numbers
        from `first` to `stop`, else `off`; `switch`, a trigger that a choice above 0 replaces by one of `levels`.
        """
        made = []
        for part in self.plan["action"]:
            x = raw_action[..., slice(*part["raw_action"])]
            if part["kind"] == "tanh":
                made.append(torch.tanh(x))
            elif part["kind"] == "sign":
                made.append(_sign(x))
            elif part["kind"] == "choice":
                numbers = torch.arange(part["first"], part["stop"], dtype=x.dtype, device=x.device)
                chosen = (x == numbers).to(x.dtype)
                made.append(part["off"] + (part["on"] - part["off"]) * chosen)
            else:
                mode = raw_action[..., slice(*part["by"])]
                level = torch.zeros_like(mode)
                for i, number in enumerate(part["levels"]):
                    level = level + number * (mode == i).to(x.dtype)
                made.append(torch.where(mode > 0.5, level, _sign(x)))
        return torch.cat(made, -1)


def _masked(output: Tensor, action_mask: Tensor) -> Tensor:
    return torch.where(action_mask, output, torch.full_like(output, MASKED))


def _sign(x: Tensor) -> Tensor:
    return 2.0 * (x > 0.5).to(x.dtype) - 1.0


# -- Files ------------------------------------------------------------------------------------------------------------

NETWORKS: dict[str, type[OriginalPolicy] | type[ModernPolicy]] = {"original": OriginalPolicy, "modern": ModernPolicy}
Policy = OriginalPolicy | ModernPolicy


def load_policy(path: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Policy:
    """Return the policy of a file, in evaluation mode, with its card as the attribute `card`.

    Args:
        path: the .safetensors file (its card, NAME.json, lies beside it), a directory with `policy.safetensors`, or a .pt
            file in the original's format.

    Raises:
        PolicyError: missing, damaged, changed, incomplete or foreign files, or a network that this file does not know.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "policy.safetensors"
    if path.suffix == ".pt":
        return _original(path).to(device, dtype).eval()
    card = read_card(path)
    found = _read_tensors(path, card)
    if card["network"] not in NETWORKS:
        raise PolicyError(f"{path} holds a network {card['network']!r}, this file knows {', '.join(NETWORKS)}")
    policy = made(card, path)
    _fill(policy, found, path)
    policy.card = card
    return policy.to(device, dtype).eval()


def made(card: Mapping[str, Any], path: str | Path) -> Policy:
    """Return the module that a card describes, with its parameters not yet filled in.

    Raises:
        PolicyError: sizes or a plan that describe no network.
    """
    plan = {"plan": card["plan"]} if card["network"] == "modern" and "plan" in card else {}
    try:
        return NETWORKS[card["network"]](**card["dimensions"], **plan)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise PolicyError(f"the card of {path} describes no {card['network']} network: {_line(error)}") from error


def read_card(path: str | Path) -> dict[str, Any]:
    """Return the card of a .safetensors file, checked against its own hash.

    Raises:
        PolicyError: missing, damaged, changed or foreign.
    """
    path = Path(path)
    card_path = path.with_suffix(".json")
    if not path.is_file():
        raise PolicyError(f"there is no policy at {path}")
    if not card_path.is_file():
        raise PolicyError(
            f"{path} has no card: {card_path} is missing (the two files belong together, name them alike)"
        )
    try:
        card = json.loads(card_path.read_text())
    except (OSError, ValueError) as error:
        raise PolicyError(f"the card {card_path} cannot be read: {_line(error)}") from error
    if not isinstance(card, dict) or card.get("kind") != KIND:
        raise PolicyError(f"{card_path} is not the card of a policy")
    if card.get("format") not in (1, FORMAT):
        raise PolicyError(f"{card_path} has format {card.get('format')!r}, this file reads 1 to {FORMAT}")
    if card.get("hash") != card_hash(card):
        raise PolicyError(f"the card {card_path} has been changed: its hash does not fit")
    return card if card["format"] == FORMAT else _with_new_words(card)


# Words of format 1, and what format 2 calls the same.
_NEW_WORDS = {"sample": "raw_action", "legal": "action_mask", "legality": "mask_rules"}


def _with_new_words(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return a card of format 1 in the words of the present format: the plan of the modern network, and the probe."""

    def renamed(found: Any) -> Any:
        if isinstance(found, dict):
            return {_NEW_WORDS.get(key, key): renamed(value) for key, value in found.items()}
        return [renamed(value) for value in found] if isinstance(found, list) else found

    return {name: renamed(value) if name in ("plan", "probe") else value for name, value in card.items()}


def card_hash(card: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a card without its own `hash`."""
    rest = {key: value for key, value in card.items() if key != "hash"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the dictionary of a .pt file in the original's format; only tensors and plain types are ever unpickled.

    Raises:
        PolicyError: missing, damaged, or without `model_state` and `env_cfg`.
    """
    path = Path(path)
    if not path.is_file():
        raise PolicyError(f"there is no checkpoint at {path}")
    try:
        if zipfile.is_zipfile(path):  # torch itself does not look at the checksums
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise PolicyError(f"{path} is damaged: the checksum of {damaged} does not fit")
        found = torch.load(path, map_location="cpu", weights_only=True)
    except zipfile.BadZipFile as error:
        raise PolicyError(f"{path} is damaged: {_line(error)}") from error
    except pickle.UnpicklingError as error:
        raise PolicyError(f"{path} is no torch checkpoint, or holds more than tensors and plain types") from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise PolicyError(f"{path} is damaged or no torch checkpoint: {_line(error)}") from error
    missing = [key for key in ("model_state", "env_cfg") if not isinstance(found, dict) or key not in found]
    if missing:
        raise PolicyError(f"{path} is not a checkpoint of the original: {' and '.join(missing)} missing")
    return found


def original_shapes(observation: int, action: int, hidden: int = 128, lstm: int = 128) -> dict[str, tuple[int, ...]]:
    """Return name and shape of the entries of the original's state dictionary, in its order."""
    return {
        "actor_logstd": (action,),
        "encoder.0.weight": (hidden, observation),
        "encoder.0.bias": (hidden,),
        "encoder.2.weight": (hidden, hidden),
        "encoder.2.bias": (hidden,),
        "lstm.weight_ih_l0": (4 * lstm, hidden),
        "lstm.weight_hh_l0": (4 * lstm, lstm),
        "lstm.bias_ih_l0": (4 * lstm,),
        "lstm.bias_hh_l0": (4 * lstm,),
        "actor_mean.weight": (action, lstm),
        "actor_mean.bias": (action,),
        "critic.weight": (1, lstm),
        "critic.bias": (1,),
    }


def checked_model_state(found: Mapping[str, Any], path: str | Path) -> dict[str, Tensor]:
    """Return the `model_state` of a checkpoint in the order of the table, every entry checked.

    Raises:
        PolicyError: an entry is missing, unknown, not float32, of another shape, or not finite; or the sizes stored beside
            it or its fingerprint, where there is one, do not fit.
    """
    state = found["model_state"]
    first, mean = (state.get(name) if isinstance(state, Mapping) else None for name in _SIZED)
    for name, tensor in zip(_SIZED, (first, mean)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 2:
            raise PolicyError(f"model_state of {path} lacks the matrix {name}")
    assert isinstance(first, Tensor) and isinstance(mean, Tensor)
    sizes = {"obs_dim": first.shape[1], "action_dim": mean.shape[0]}
    _match(state, original_shapes(first.shape[1], mean.shape[0], first.shape[0], mean.shape[1]), path)
    for key, size in sizes.items():
        if key in found and found[key] != size:
            raise PolicyError(f"{key} of {path} is {found[key]!r}, its weights are made for {size}")
    block = found.get("echelon_jax")
    if isinstance(block, Mapping) and block.get("fingerprint") != fingerprint({**state, **block_tensors(block)}):
        raise PolicyError(f"the weights of {path} have been changed: their fingerprint does not fit")
    return {name: state[name] for name in original_shapes(1, 1)}


def block_tensors(block: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of the block that this project adds to a checkpoint of the original, by path."""
    groups = {name: group for name, group in block.items() if isinstance(group, Mapping)}
    return {f"{g}/{n}": t for g, group in groups.items() for n, t in group.items() if isinstance(t, Tensor)}


_SIZED = ("encoder.0.weight", "actor_mean.weight")


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, shapes and numbers of float32 tensors, whatever their order."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}{list(tensor.shape)}".encode())
        digest.update(bytes(tensor.flatten().view(torch.uint8).tolist()))
    return digest.hexdigest()


def _original(path: Path) -> OriginalPolicy:
    found = read_checkpoint(path)
    state = checked_model_state(found, path)
    first, mean = (state[name] for name in _SIZED)
    policy = OriginalPolicy(first.shape[1], mean.shape[0], first.shape[0], mean.shape[1])
    policy.load_state_dict({**policy.state_dict(), **state}, strict=True)
    policy.card = {"network": "original", "dimensions": policy.dimensions, "env": found["env_cfg"]}
    return policy


def _read_tensors(path: Path, card: Mapping[str, Any]) -> dict[str, Tensor]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{path} cannot be read: {_line(error)}") from error
    if hashlib.sha256(data).hexdigest() != card["weights"]:
        raise PolicyError(f"{path} is damaged, or belongs to another card: its hash does not fit")
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise PolicyError(f"{path} is not a safetensors file: {_line(error)}") from error


def _fill(policy: nn.Module, found: Mapping[str, Tensor], path: Path) -> None:
    _match(found, {name: tuple(tensor.shape) for name, tensor in policy.state_dict().items()}, path)
    policy.load_state_dict(dict(found), strict=True)


def _match(found: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], path: str | Path) -> None:
    """Refuse tensors that are not exactly those of the table."""
    for words, names in (("lacks", set(shapes) - set(found)), ("has the unknown", set(found) - set(shapes))):
        if names:
            raise PolicyError(f"{path} {words} {', '.join(sorted(names))}")
    for name, shape in shapes.items():
        tensor = found[name]
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
            got = f"{tensor.dtype}{list(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise PolicyError(f"{name} of {path} must be float32{list(shape)}, got {got}")
        if tensor.isnan().any() or (tensor.isinf().any() and name != "observation_limit"):
            raise PolicyError(f"{name} of {path} holds numbers that are not finite")


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# -- The probe: numbers stored by the maker, to be found again wherever the file is used ---------------------------------

PROBE_STEPS, PROBE_ROWS, PROBE_TOLERANCE = 3, 2, 1e-5


def probe_observation(size: int, shared: Sequence[int] = (0, 0)) -> list[list[list[float]]]:
    """Return the probe's observations [steps][rows][size], zeros and ones by whole-number arithmetic.

    Two mechs of a team; the `shared` entries (start, number) are alike in both, as in play.
    """
    start, stop = shared[0], shared[0] + shared[1]

    def number(t: int, row: int, k: int) -> float:
        own = 0 if start <= k < stop else 5 * row
        return float((k * (t + 3) + own + k // 7) * 7 % 11 < 5)

    return [[[number(t, row, k) for k in range(size)] for row in range(PROBE_ROWS)] for t in range(PROBE_STEPS)]


def probe(policy: Policy) -> dict[str, Any]:
    """Return the heads of the probe's last step; the second row's memory is reset before it."""
    like = policy.observation_shift
    seen = probe_observation(policy.dimensions["observation"], policy.shared)
    observation = torch.tensor(seen, dtype=like.dtype, device=like.device)
    h, c = policy.initial_state(PROBE_ROWS)
    with torch.no_grad():
        for t in range(PROBE_STEPS):
            done = torch.tensor([False, t == PROBE_STEPS - 1], device=like.device)
            *heads, value, h, c = policy(observation[t], h, c, done)
    found = (*zip(policy.head_outputs, heads), ("value", value))
    return {name: head.to(like.dtype).tolist() for name, head in found}  # action masks as 0 and 1


def main(arguments: list[str]) -> int:
    """Check a policy file: print its sizes and how far its probe is from the stored numbers. Return 0 if within 1e-5."""
    if len(arguments) != 1:
        print("usage: python torch_policy.py policy.safetensors", file=sys.stderr)
        return 2
    try:
        policy = load_policy(arguments[0])
    except PolicyError as error:
        print(error, file=sys.stderr)
        return 2
    count = sum(p.numel() for p in policy.parameters())
    print(f"{arguments[0]}: network {policy.network}, {policy.dimensions}, {count} parameters")
    expected = policy.card.get("probe")
    if expected is None:
        print("no stored numbers to compare with")
        return 0
    got = probe(policy)
    # As the maker compares: relative to the largest number of a head's row where that is above 1. The value is one number.
    worst = 0.0
    for key, numbers in expected.items():
        right = torch.tensor(numbers, dtype=torch.float64)
        size = right.abs() if key == "value" else right.abs().amax(-1, keepdim=True)
        off = (torch.tensor(got[key], dtype=torch.float64) - right).abs() / size.clamp(min=1.0)
        worst = max(worst, float(off.max()))
    print(f"largest difference from the maker's numbers: {worst:.1e} (allowed {PROBE_TOLERANCE:.0e})")
    return 0 if worst <= PROBE_TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
