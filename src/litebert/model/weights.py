"""Folders of weights in and out, strictly: a missing, extra or misshapen tensor is an error that names it.

Two kinds of folder load: ours (`litebert.json` and `model.safetensors`, each shared weight once) and those of
`transformers` (`config.json` with safetensors, sharded safetensors, or `pytorch_model.bin`). Files may come from
strangers: nothing is unpickled but tensors, no name in a file leads out of the folder, and sizes are compared with the
file before memory is taken for them.
"""

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from litebert.config import HeadConfig, ModelConfig, UserError
from litebert.files import first_line, read_json, replace_file
from litebert.model.heads import Network
from litebert.model.published import State, plain, publish, read_config, read_tensors
from litebert.strict import parse

OURS = "litebert.json"
FORMAT = 1
CHECKPOINTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def build(config: ModelConfig, heads: Sequence[HeadConfig] = (), seed: int = 0) -> Network:
    """A network with fresh weights: the same seed gives the same ones."""
    return Network(config, heads, torch.Generator().manual_seed(seed))


def load_network(folder: Path) -> tuple[Network, torch.dtype]:
    """The network in a folder, in float32 (float64 stays), and the type it was stored in: float32 if several."""
    config, heads, state = read_folder(folder)
    found = {tensor.dtype for tensor in state.values()}
    stored = found.pop() if len(found) == 1 else torch.float32
    network = fill(config, heads, state, str(folder))
    for parameter in network.parameters():  # a copy of our own, aligned: the file's pages are neither
        parameter.data = parameter.data.to(torch.promote_types(stored, torch.float32), copy=True)
    return network, stored


def fill(config: ModelConfig, heads: Sequence[HeadConfig], state: Mapping[str, Tensor], where: str) -> Network:
    """A network that holds exactly these tensors."""
    with torch.device("meta"):  # no memory is taken until the shapes are known to agree
        network = Network(config, heads)
    wanted = network.state_dict()
    for name in wanted:
        if name not in state:
            raise UserError(f"{where} lacks the tensor {name}")
    for name, tensor in state.items():
        if name not in wanted:
            raise UserError(f"{where} holds the tensor {plain(name)}, which this model has no place for")
        if tensor.shape != wanted[name].shape:
            raise UserError(f"{where}: {name} is {list(tensor.shape)} and should be {list(wanted[name].shape)}")
        if not tensor.is_floating_point():
            raise UserError(f"{where}: {name} holds {tensor.dtype}, not floating-point numbers")
    network.load_state_dict(state, strict=True, assign=True)
    network.requires_grad_(True)
    return network.eval()


def read_folder(folder: Path) -> tuple[ModelConfig, tuple[HeadConfig, ...], State]:
    """Configs and tensors under our names, from either kind of folder."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    if (folder / OURS).is_file():
        config, heads = read_our_config(folder)
        return config, heads, read_file(folder / "model.safetensors")
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds neither {OURS} nor config.json, so it is not a model")
    tensors = _modern(read_checkpoint(folder))
    where = str(folder / "config.json")
    config, heads = read_config(read_json(folder / "config.json"), set(tensors), where)
    config, state = read_tensors(config, heads, tensors, str(folder))
    return config, heads, state


def read_our_config(folder: Path) -> tuple[ModelConfig, tuple[HeadConfig, ...]]:
    data = read_json(folder / OURS)
    if data.get("format") != FORMAT:
        raise UserError(f"{folder / OURS}: format {data.get('format')!r}; this version of litebert reads {FORMAT}")
    model, heads = data.get("model"), data.get("heads", [])
    if not isinstance(model, dict) or not isinstance(heads, list) or not all(isinstance(h, dict) for h in heads):
        raise UserError(f"{folder / OURS} needs a table 'model' and a list of tables 'heads'")
    try:
        return parse(ModelConfig, model, "model"), tuple(parse(HeadConfig, head, "heads") for head in heads)
    except UserError as problem:
        raise UserError(f"{folder / OURS}: {problem}") from None


def read_checkpoint(folder: Path) -> State:
    """All tensors of a published folder, under its own names."""
    found = next((name for name in CHECKPOINTS if (folder / name).is_file()), None)
    if found is None:
        raise UserError(f"{folder} holds no weights; looked for {', '.join(CHECKPOINTS)}")
    if not found.endswith(".index.json"):
        return read_file(folder / found)
    index = read_json(folder / found).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise UserError(f"{folder / found} has no weight_map of names to files")
    tensors: State = {}
    for shard in sorted(set(index.values())):
        _stays_inside(shard, folder / found)
        if not (folder / shard).is_file():
            raise UserError(f"{folder / found} names {shard}, which is not there")
        for name, tensor in read_file(folder / shard).items():
            if index.get(name) != shard:
                raise UserError(
                    f"{folder / shard} holds the tensor {plain(name)}, which the index does not place there"
                )
            tensors[name] = tensor
    lost = sorted(set(index) - set(tensors))
    if lost:
        raise UserError(f"{folder / index[lost[0]]} lacks the tensor {plain(lost[0])}, which the index places there")
    return tensors


def _stays_inside(name: str, index: Path) -> None:
    if len(name) > 200 or not name.isprintable():
        raise UserError(f"{index} names a file {plain(name)} that cannot be one")
    if {PurePosixPath(name).name, PureWindowsPath(name).name} != {name} or name in ("", ".", ".."):
        raise UserError(f"{index} names {name!r}: only files beside it are read")
    if not name.endswith((".safetensors", ".bin")):
        raise UserError(f"{index} names {name!r}, which is neither .safetensors nor .bin")


def read_file(path: Path) -> State:
    if not path.is_file():
        raise UserError(f"no file {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} holds something other than tensors, or is corrupted; only tensors are unpickled"
        ) from None
    except Exception as problem:  # noqa: BLE001  the loaders raise whatever a broken byte leads them to
        raise UserError(f"{path} is truncated or corrupted: {first_line(problem)}") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise UserError(f"{path} is not a table of tensors")
    for name, tensor in tensors.items():
        dense = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not dense or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise UserError(f"{path}: {plain(str(name))} is not a plain tensor with all its numbers in the file")
    return {str(name): tensor for name, tensor in tensors.items()}


def _modern(tensors: State) -> State:
    """Files of 2018 and 2019 call a norm's weight and bias gamma and beta."""
    names = {name: name.removesuffix(".gamma") + ".weight" for name in tensors if name.endswith(".gamma")}
    names |= {name: name.removesuffix(".beta") + ".bias" for name in tensors if name.endswith(".beta")}
    return {names.get(name, name): tensor for name, tensor in tensors.items()}


def save_network(network: Network, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Our own folder: what `load_network` reads back bit for bit."""
    state = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in network.state_dict().items()}
    save_state(network.config, network.head_configs, state, folder)


def save_state(config: ModelConfig, heads: Sequence[HeadConfig], state: State, folder: Path) -> None:
    """The same from tensors alone."""
    _write(folder, OURS, {"format": FORMAT, "model": asdict(config), "heads": [asdict(head) for head in heads]}, state)


def export_network(network: Network, folder: Path, dtype: torch.dtype | None = None) -> tuple[str, ...]:
    """A folder that `transformers` loads. What had to be said another way is returned, a line each."""
    state = {name: tensor.detach().to("cpu", dtype) for name, tensor in network.state_dict().items()}
    published = publish(network.config, network.head_configs, state)
    kind = str(next(iter(published.tensors.values())).dtype).removeprefix("torch.")
    _write(folder, "config.json", published.config | {"dtype": kind}, published.tensors)
    return published.notes


def _write(folder: Path, name: str, config: dict[str, Any], state: State) -> None:
    """Each file appears whole or not at all, and the config last: a folder with one is complete."""
    other = {OURS: "config.json", "config.json": OURS}[name]
    if (folder / other).exists():
        raise UserError(f"{folder} holds a model of another kind ({other}); choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        replace_file(folder / "model.safetensors", save(state, metadata={"format": "pt"}))
        replace_file(folder / name, (json.dumps(config, indent=2) + "\n").encode())
    except OSError as problem:
        raise UserError(f"cannot write {folder}: {problem.strerror or problem}") from None
