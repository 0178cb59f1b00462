"""A small builder of ONNX graphs: names, constants stored once, loop bodies that see the outer graph.

Every method returns the names of the tensors it makes, so that layers compose like functions.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from mtn_edge import __version__

OPSET = 20
"""The newest operator set in which every operator here has one meaning in ONNX Runtime 1.26 and later."""
IR_VERSION = 10
"""Version of the file format."""
CONTRIB = "com.microsoft"
"""Domain of ONNX Runtime's fused operators."""

Shape = Sequence[int | str]
FLOAT, INT64, BOOL, UINT8 = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
    onnx.TensorProto.UINT8,
)


@dataclass(frozen=True)
class Carry:
    """A value that a loop hands from one pass to the next.

    Attributes:
        name: its name inside the loop's body.
        element: its ONNX element type.
        shape: its shape inside the body.
        initial: the outer tensor it starts as.
    """

    name: str
    element: int
    shape: Shape
    initial: str


class GraphBuilder:
    """Collects the parts of one graph, or of a loop's body (then with `parent`).

    Attributes:
        name: the graph's name.
        root: the builder of the outermost graph.
    """

    def __init__(self, name: str, parent: GraphBuilder | None = None) -> None:
        self.name = name
        self.root: GraphBuilder = parent.root if parent is not None else self
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        # Kept by the outermost graph only: loop bodies see its constants, and names are unique over all of it.
        self._constants: dict[bytes, str] = {}
        self._initializers: list[onnx.TensorProto] = []
        self._names: Counter[str] = Counter()

    def input(self, name: str, element: int, shape: Shape) -> str:
        """Declares an input; a letter in `shape` is a dynamic axis."""
        self._inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def output(self, value: str, name: str, element: int, shape: Shape) -> None:
        """Declares that `value` is the output `name`."""
        self._rename(value, name)
        self._outputs.append(helper.make_tensor_value_info(name, element, shape))

    def constant(self, value: NDArray[Any], name: str = "constant") -> str:
        """An initializer; equal arrays are stored once."""
        root = self.root
        value = np.ascontiguousarray(value).reshape(value.shape)
        key = hashlib.sha256(f"{value.dtype} {value.shape} ".encode() + value.tobytes()).digest()
        if key not in root._constants:
            root._constants[key] = self._fresh(name)
            root._initializers.append(numpy_helper.from_array(value, root._constants[key]))
        return root._constants[key]

    def integers(self, *values: int) -> str:
        """A vector of int64 constants, for axes and shapes."""
        return self.constant(np.array(values, dtype=np.int64))

    def integer(self, value: int) -> str:
        """An int64 scalar."""
        return self.constant(np.array(value, dtype=np.int64))

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output; an empty input name leaves an optional input out."""
        return self.nodes(operator, *inputs, outputs=1, domain=domain, **attributes)[0]

    def nodes(
        self,
        operator: str,
        *inputs: str,
        outputs: int,
        unused: Sequence[int] = (),
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Adds a node with `outputs` outputs; those in `unused` are left out, and their names empty."""
        name = self._fresh(operator)
        names = [name if outputs == 1 else f"{name}.{number}" for number in range(outputs)]
        for number in unused:
            names[number] = ""
        self._nodes.append(helper.make_node(operator, inputs, names, name=name, domain=domain, **attributes))
        return names

    def split(self, value: str, parts: int, *, axis: int) -> list[str]:
        """`value` cut into equal parts along `axis`."""
        if parts == 1:
            return [value]
        return self.nodes("Split", value, outputs=parts, axis=axis, num_outputs=parts)

    def loop(
        self, body: GraphBuilder, carries: Sequence[Carry], updates: Sequence[str], *, trips: str, go_on: str
    ) -> list[str]:
        """Adds a Loop.

        Args:
            body: a builder made with `parent=self`, holding the nodes of one pass.
            carries: the values handed on, named as `body` uses them.
            updates: what each becomes at the end of a pass.
            trips: outer tensor: passes at most.
            go_on: tensor of `body`: whether there is another pass.

        Returns:
            The final values of `carries`.
        """
        body.input("position", INT64, [])
        body.input("went_on", BOOL, [])
        body.output(go_on, "go_on", BOOL, [])
        for carry, update in zip(carries, updates, strict=True):
            body.input(carry.name, carry.element, carry.shape)
            body.output(update, f"{carry.name}_next", carry.element, carry.shape)
        return self.nodes("Loop", trips, "", *(c.initial for c in carries), outputs=len(carries), body=body._graph())

    def branch(self, condition: str, then: GraphBuilder, otherwise: GraphBuilder) -> str:
        """Adds an If with one output, the first of each branch.

        Args:
            condition: bool [] tensor.
            then: a builder made with `parent=self`, with one output.
            otherwise: the same.
        """
        return self.node("If", condition, then_branch=then._graph(), else_branch=otherwise._graph())

    def model(self) -> onnx.ModelProto:
        """The finished, checked model.

        Raises:
            onnx.checker.ValidationError: the graph breaks ONNX's rules.
        """
        model = helper.make_model(
            self._graph(),
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)],
            ir_version=IR_VERSION,
            producer_name="mtn-edge",
            producer_version=__version__,
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _graph(self) -> onnx.GraphProto:
        return helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, initializer=self._initializers)

    def _fresh(self, name: str) -> str:
        count = self.root._names[name]
        self.root._names[name] += 1
        return f"{name}_{count}" if count or name[0].isupper() else name

    def _rename(self, value: str, name: str) -> None:
        """Gives the node output `value` its public name."""
        for node in self._nodes:
            for place, output in enumerate(node.output):
                if output == value:
                    node.output[place] = name
            for place, used in enumerate(node.input):
                if used == value:
                    node.input[place] = name
