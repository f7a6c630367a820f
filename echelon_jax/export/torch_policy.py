"""A trained Echelon policy in PyTorch. One file that needs torch and safetensors only: copy it into any project.

    policy = load_policy("policy.safetensors", device="cpu")   # reads policy.json beside it; strict
    state = policy.initial_state(batch)                        # the memory: (h, c), [batch, lstm] each, zeros
    acted = policy.act(observation, state, done)               # observation [batch, obs], done [batch]
    environment.step(acted.action); state = acted.state        # action [batch, actions] in [-1, 1]

One row of a batch is one mech. `done` is true where an episode boundary lies before this observation: that row starts from
an empty memory. The observation is the environment's own; the normaliser is inside. `load_policy` also reads a `.pt` file in
the original Echelon's format. As a script it checks a file against the numbers that its maker stored with it:

    python torch_policy.py policy.safetensors
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

FORMAT = 1
KIND = "echelon policy"
SQUASH_EPSILON = 1e-6  # actions from elsewhere are clamped this far inside (-1, 1)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class PolicyError(Exception):
    """A policy file could not be read or used; the message is one sentence."""


class State(NamedTuple):
    """The memory of every row, torch order: hidden [batch, lstm] and cell [batch, lstm]."""

    h: Tensor
    c: Tensor


class Acted(NamedTuple):
    """What `act` returns.

    Attributes:
        action: [batch, actions] in [-1, 1].
        log_prob: [batch], log-density of the action.
        value: [batch], in the critic's units (returns less their mean, over their deviation).
        state: the memory after this observation.
        sample: [batch, actions], the action before tanh.
    """

    action: Tensor
    log_prob: Tensor
    value: Tensor
    state: State
    sample: Tensor


class LSTMCell(nn.Module):
    """One LSTM layer with the parameters of `torch.nn.LSTM`; rows of the matrices in the order i, f, g, o.

    Written out because then it exports to other formats as a handful of plain operators.
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


class OriginalPolicy(nn.Module):
    """The network of the original's ActorCriticLSTM behind an observation normaliser.

    The state dictionary has the original's thirteen entries, and three for the normaliser
    x' = clamp((x - shift) / scale, -limit, limit), limit being infinite for features that are not clipped.

    Arguments:
        observation, action: entries of an observation and of an action.
        hidden, lstm: widths of the encoder and of the memory.
    """

    network = "original"
    card: dict[str, Any]  # of the file it was loaded from
    observation_shift: Tensor
    observation_scale: Tensor
    observation_limit: Tensor

    def __init__(self, observation: int, action: int, hidden: int = 128, lstm: int = 128) -> None:
        super().__init__()
        self.dimensions = {"observation": observation, "action": action, "hidden": hidden, "lstm": lstm}
        self.actor_logstd = nn.Parameter(torch.zeros(action))
        self.encoder = nn.Sequential(nn.Linear(observation, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.lstm = LSTMCell(hidden, lstm)
        self.actor_mean = nn.Linear(lstm, action)
        self.critic = nn.Linear(lstm, 1)
        self.register_buffer("observation_shift", torch.zeros(observation))
        self.register_buffer("observation_scale", torch.ones(observation))
        self.register_buffer("observation_limit", torch.full((observation,), math.inf))

    def initial_state(self, batch: int) -> State:
        """Return the memory of rows that have seen nothing."""
        zeros = self.actor_logstd.new_zeros(batch, self.dimensions["lstm"])
        return State(zeros, zeros.clone())

    def forward(
        self, observation: Tensor, h: Tensor, c: Tensor, done: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Run one decision.

        Arguments:
            observation: [batch, observation].
            h, c: the memory, [batch, lstm] each.
            done: [batch], bool or 0 and 1.

        Returns:
            mean [batch, actions] before tanh, log-std [batch, actions], value [batch], and the new h and c.
        """
        x = (observation.to(self.actor_logstd.dtype) - self.observation_shift) / self.observation_scale
        x = torch.minimum(torch.maximum(x, -self.observation_limit), self.observation_limit)
        begin = done.bool()[:, None]
        h, c = (torch.where(begin, torch.zeros_like(s), s) for s in (h, c))
        h, c = self.lstm(self.encoder(x), h, c)
        mean = self.actor_mean(h)
        return mean, self.actor_logstd.expand_as(mean), self.critic(h)[:, 0], h, c

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
        """Choose actions: a sample, or tanh of the mean where `deterministic`.

        Arguments:
            state: None for an empty memory. done: None for no boundary.
            generator: of the draws, on the policy's device; None for torch's global one.

        Raises:
            ValueError: an observation of another shape.
        """
        if observation.ndim != 2 or observation.shape[1] != self.dimensions["observation"]:
            size = self.dimensions["observation"]
            raise ValueError(f"observation must have shape [batch, {size}], got {list(observation.shape)}")
        rows = observation.shape[0]
        h, c = self.initial_state(rows) if state is None else state
        if done is None:
            done = torch.zeros(rows, dtype=torch.bool, device=observation.device)
        mean, log_std, value, h, c = self(observation, h, c, done)
        sample = mean
        if not deterministic:
            noise = torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=generator)
            sample = mean + log_std.exp() * noise
        return Acted(torch.tanh(sample), log_prob(mean, log_std, sample), value, State(h, c), sample)


def log_prob(mean: Tensor, log_std: Tensor, sample: Tensor) -> Tensor:
    """Return the log-density [batch] of the action tanh(sample); finite for every finite sample."""
    z = (sample - mean) * torch.exp(-log_std)
    log_det = 2.0 * (math.log(2.0) - sample - torch.logaddexp(-2.0 * sample, torch.zeros_like(sample)))
    return -(0.5 * z * z + log_std + _HALF_LOG_TWO_PI + log_det).sum(-1)


def sample_of(action: Tensor) -> Tensor:
    """Return what `tanh` made an action of; components are clamped to 1e-6 inside (-1, 1) first."""
    inside = action.clamp(-1.0 + SQUASH_EPSILON, 1.0 - SQUASH_EPSILON)
    return 0.5 * (torch.log1p(inside) - torch.log1p(-inside))


# -- Files ------------------------------------------------------------------------------------------------------------

NETWORKS: dict[str, type[OriginalPolicy]] = {"original": OriginalPolicy}


def load_policy(
    path: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> OriginalPolicy:
    """Return the policy of a file, in evaluation mode, with its card as the attribute `card`.

    Arguments:
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
    policy = NETWORKS[card["network"]](**card["dimensions"])
    _fill(policy, found, path)
    policy.card = card
    return policy.to(device, dtype).eval()


def read_card(path: str | Path) -> dict[str, Any]:
    """Return the card of a .safetensors file, checked against its own hash.

    Raises:
        PolicyError: missing, damaged, changed or foreign.
    """
    path = Path(path)
    place = path.with_suffix(".json")
    if not path.is_file():
        raise PolicyError(f"there is no policy at {path}")
    if not place.is_file():
        raise PolicyError(f"{path} has no card: {place} is missing (the two files belong together, name them alike)")
    try:
        card = json.loads(place.read_text())
    except (OSError, ValueError) as error:
        raise PolicyError(f"the card {place} cannot be read: {_line(error)}") from error
    if not isinstance(card, dict) or card.get("kind") != KIND:
        raise PolicyError(f"{place} is not the card of a policy")
    if card.get("format") != FORMAT:
        raise PolicyError(f"{place} has format {card.get('format')!r}, this file reads {FORMAT}")
    if card.get("hash") != card_hash(card):
        raise PolicyError(f"the card {place} has been changed: its hash does not fit")
    return card


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


def probe_observation(size: int) -> list[list[list[float]]]:
    """Return the probe's observations [steps][rows][size], zeros and ones by whole-number arithmetic."""
    return [
        [[float((k * (t + 3) + 5 * row + k // 7) * 7 % 11 < 5) for k in range(size)] for row in range(PROBE_ROWS)]
        for t in range(PROBE_STEPS)
    ]


def probe(policy: OriginalPolicy) -> dict[str, Any]:
    """Return mean and value of the probe's last step; the second row's memory is reset before it."""
    like = policy.actor_logstd
    observation = torch.tensor(
        probe_observation(policy.dimensions["observation"]), dtype=like.dtype, device=like.device
    )
    h, c = policy.initial_state(PROBE_ROWS)
    with torch.no_grad():
        for t in range(PROBE_STEPS):
            done = torch.tensor([False, t == PROBE_STEPS - 1], device=like.device)
            mean, _, value, h, c = policy(observation[t], h, c, done)
    return {"mean": mean.tolist(), "value": value.tolist()}


def main(arguments: list[str]) -> int:
    """Check a policy file: print what it is and how far its probe is from the maker's numbers; 0 if within 1e-5."""
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
    worst = max(float((torch.tensor(got[key]) - torch.tensor(expected[key])).abs().max()) for key in ("mean", "value"))
    print(f"largest difference from the maker's numbers: {worst:.1e} (allowed {PROBE_TOLERANCE:.0e})")
    return 0 if worst <= PROBE_TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
