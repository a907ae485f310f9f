"""Writing an ONNX graph: operators in the order they run, each weight once.

A weight is stored as the matrix product wants it, so that nothing has to be turned when the file is read. What reads a
weight names it: twelve layers that share one name one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.config import UserError
from litebert.infer.cpu import EVERYWHERE, WITH_WHOLE_SUMS

OPSET = 20  # the first with Gelu
LARGE = 1 << 16  # numbers
MICROSOFT = "com.microsoft"  # operators of onnxruntime's own
Rows = tuple[str, str]  # names of what pieces are multiplied by, and what undoes it


def library() -> Any:
    try:
        import onnx
    except ImportError:
        raise UserError("writing ONNX needs the package onnx: pip install 'litebert[onnx]'") from None
    return onnx


class Graph:
    """Nodes and weights; a part that repeats is a graph of its own that sees the weights of the one around it."""

    def __init__(
        self, int8: bool = False, around: "Graph | None" = None, compact: bool = True, finest: int = EVERYWHERE
    ) -> None:
        """Where it is int8: `compact`, large matrices that are multiplied in float32 are stored in 8 bits; `finest`,
        the steps either way of weights that are multiplied in whole numbers, as many as the CPUs that they may meet can
        add up."""
        self.int8, self.compact, self.onnx = int8, compact, library()
        self.finest: int = around.finest if around else finest
        self.nodes: list[Any] = []
        self.weights: dict[str, NDArray[Any]] = around.weights if around else {}
        self.root: Graph = around.root if around else self
        self.count = 0

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """A node; returns the name of what it gives, or the names where it gives several."""
        made = []
        for _ in range(outputs):
            self.root.count += 1
            made.append(f"{kind}_{self.root.count}")
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), made, domain=domain, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        array = np.asarray(value, dtype=dtype)
        name = f"constant_{array.dtype}_{'x'.join(map(str, array.shape))}_{array.tobytes().hex()}"
        self.weights.setdefault(name, array)
        return name

    def weight(self, name: str, tensor: Tensor) -> str:
        self.weights.setdefault(name, numbers(tensor))
        return name

    def linear(self, name: str, layer: nn.Linear, x: str, exact: bool = False, rows: Rows | None = None) -> str:
        """`exact`: multiplied in float32 even where the graph is int8. `rows`: as in `product`."""
        bias = None if layer.bias is None else self.weight(f"{name}.bias", layer.bias)
        if self.int8 and not exact and rows is None:
            return self.quantised(x, *self.steps(name, layer), bias)
        made = self.product(name, layer, x, exact, rows)
        return made if bias is None else str(self.op("Add", made, bias))

    def product(self, name: str, layer: nn.Linear, x: str, exact: bool = False, rows: Rows | None = None) -> str:
        """Without its bias. `rows`: what pieces are multiplied by before they are rounded, and after the product."""
        if not self.int8 or exact:
            return str(self.op("MatMul", x, self.kernel(name, layer.weight)))
        before, after = rows or ("", "")
        x = str(self.op("Mul", x, before)) if before else x
        made = self.quantised(x, *self.steps(name, layer), None)
        return str(self.op("Mul", made, after)) if after else made

    def rows(self, x: str, factor: float, most: int) -> Rows:
        """For (batch, length, …): this for the first piece and one for the others; then the same to divide by."""
        length = self.op("Slice", self.op("Shape", x), self.constant([1]), self.constant([2]))
        made = []
        for first in (factor, 1 / factor):
            column = np.ones((most, 1))
            column[0] = first
            name = f"first.{first}"
            self.weights.setdefault(name, column.astype(np.float32))
            made.append(str(self.op("Slice", name, self.constant([0]), length)))
        return made[0], made[1]

    def steps(self, name: str, layer: nn.Linear) -> tuple[str, str]:
        if f"{name}.int8" not in self.weights:
            self.rough(name, layer.weight, True, self.finest)
        return f"{name}.int8", f"{name}.scale"

    def kernel(self, name: str, matrix: Tensor) -> str:
        """A layer's matrix, (out, in), as (in, out) in float32."""
        if not self.int8 or not self.compact or matrix.numel() < LARGE:
            return self.weight(f"{name}.weight", matrix.t())
        self.rough(name, matrix, True)
        wide = self.op("Cast", f"{name}.int8", to=self.onnx.TensorProto.FLOAT)
        return str(self.op("Mul", wide, f"{name}.scale"))

    def rough(self, name: str, matrix: Tensor, turned: bool, finest: int = WITH_WHOLE_SUMS) -> None:
        """A matrix in 8 bits, and what a step of each of its rows is worth."""
        steps, scale = in_steps(matrix.detach().float(), finest)
        self.weights[f"{name}.int8"] = (steps.t() if turned else steps).cpu().numpy()
        self.weights[f"{name}.scale"] = numbers(scale)

    def quantised(self, x: str, kernel: str, scale: str, bias: str | None) -> str:
        """What goes in is rounded to 256 steps between its own extremes, then multiplied in whole numbers."""
        last = [bias] if bias else []
        return str(self.op("DynamicQuantizeMatMul", x, kernel, scale, "", *last, domain=MICROSOFT))

    def norm(self, name: str, layer: nn.LayerNorm, x: str) -> str:
        scale, bias = self.weight(f"{name}.weight", layer.weight), self.weight(f"{name}.bias", layer.bias)
        return str(self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=layer.eps))

    def activation(self, name: str, x: str) -> str:
        match name:
            case "gelu" | "gelu_tanh":
                return str(self.op("Gelu", x, approximate="tanh" if name == "gelu_tanh" else "none"))
            case "relu" | "tanh":
                return str(self.op(name.capitalize(), x))
            case "silu":
                return str(self.op("Mul", x, self.op("Sigmoid", x)))
        raise UserError(f"activation {name!r} is not known to the ONNX export")

    def repeat(self, times: str, x: str, body: "Graph", given: str, made: str, width: int) -> str:
        """`body`, whose input is `given` and output `made`, so many times, beginning with `x`."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        inside = [
            helper.make_tensor_value_info("turn", types.INT64, []),
            helper.make_tensor_value_info("go_on", types.BOOL, []),
            helper.make_tensor_value_info(given, types.FLOAT, [None, None, width]),
        ]
        body.nodes.append(helper.make_node("Identity", ["go_on"], ["goes_on"]))
        outside = [
            helper.make_tensor_value_info("goes_on", types.BOOL, []),
            helper.make_tensor_value_info(made, types.FLOAT, [None, None, width]),
        ]
        layer = helper.make_graph(body.nodes, "layer", inside, outside)
        return str(self.op("Loop", times, "", x, body=layer))

    def write(self, inputs: Mapping[str, Sequence[str | int]], outputs: Mapping[str, Sequence[str | int]]) -> bytes:
        """The file. Inputs are whole numbers, but for states; outputs are not, but for places (`_at`)."""
        helper, types, convert = self.onnx.helper, self.onnx.TensorProto, self.onnx.numpy_helper
        taken = {name: types.FLOAT if name.startswith("states") else types.INT64 for name in inputs}
        given = [helper.make_tensor_value_info(name, taken[name], shape) for name, shape in inputs.items()]
        kinds = {name: types.INT64 if name.endswith("_at") else types.FLOAT for name in outputs}
        made = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in outputs.items()]
        weights = [convert.from_array(np.asarray(each, order="C"), name) for name, each in self.weights.items()]
        graph = helper.make_graph(self.nodes, "litebert", given, made, weights)
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=10, producer_name="litebert")
        self.onnx.checker.check_model(model)
        return bytes(model.SerializeToString())


def numbers(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().to(torch.float32).cpu().numpy()
    return array


def in_steps(matrix: Tensor, finest: int) -> tuple[Tensor, Tensor]:
    """A matrix in 8 bits, and what a step of each row is worth: its largest number becomes the finest step."""
    largest = matrix.abs().amax(1)
    scale = torch.where(largest > 0, largest, 1.0) / finest
    return (matrix / scale[:, None]).round().clamp(-finest, finest).to(torch.int8), scale
