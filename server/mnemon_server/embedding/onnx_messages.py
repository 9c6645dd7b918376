"""The messages of ONNX files, with the fields that are written or read here.

The package onnx, which is 28 MB, is not needed to build or inspect a graph. Other fields of a file that is read stay in
its messages.
"""

from collections.abc import Sequence
from itertools import starmap
from typing import Any, TypeAlias

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray

# Their fields are known at run time only.
Model: TypeAlias = Any
Node: TypeAlias = Any
Tensor: TypeAlias = Any
ValueInfo: TypeAlias = Any

_FIELDS = {
    "Model": "1 int64 ir_version, 7 Graph graph, 8 Opset* opset_import",
    "Opset": "1 string domain, 2 int64 version",
    "Graph": "1 Node* node, 2 string name, 5 Tensor* initializer, 11 ValueInfo* input, 12 ValueInfo* output",
    "Node": "1 string* input, 2 string* output, 3 string name, 4 string op_type, 5 Attribute* attribute, "
    "7 string domain",
    "Attribute": "1 string name, 2 float f, 3 int64 i, 4 bytes s, 8 int64* ints, 20 int32 type",
    "Tensor": "1 int64* dims, 2 int32 data_type, 4 float* float_data, 8 string name, 9 bytes raw_data, "
    "13 Entry* external_data, 14 int32 data_location",
    "Entry": "1 string key, 2 string value",
    "ValueInfo": "1 string name, 2 Type type",
    "Type": "1 TensorType tensor_type",
    "TensorType": "1 int32 elem_type, 2 Shape shape",
    "Shape": "1 Dimension* dim",
    "Dimension": "1 int64 dim_value, 2 string dim_param",
}
"""For each message, the fields: number, type, `*` if there may be several, and name."""

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "mnemon.onnx"


def _field(text: str) -> _Field:
    number, kind, name = text.split()
    field = _Field(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
    if (kind := kind.rstrip("*")) in _FIELDS:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    return field


def _message(name: str, fields: str) -> descriptor_pb2.DescriptorProto:
    return descriptor_pb2.DescriptorProto(name=name, field=map(_field, fields.split(", ")))


_FILE = descriptor_pb2.FileDescriptorProto(name="mnemon/onnx.proto", package=_PACKAGE)
_FILE.message_type.extend(starmap(_message, _FIELDS.items()))
# A pool of its own, so that it cannot meet the descriptors of other libraries.
_MESSAGES: Any = message_factory.GetMessages([_FILE], descriptor_pool.DescriptorPool())


def _class(name: str) -> Any:
    return _MESSAGES[f"{_PACKAGE}.{name}"]


FLOAT, UINT8, INT8, INT32, INT64, FLOAT16 = 1, 2, 3, 6, 7, 10
"""Types of numbers in ONNX."""
_TYPES = {"float32": FLOAT, "uint8": UINT8, "int8": INT8, "int32": INT32, "int64": INT64, "float16": FLOAT16}
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE, _STRING_ATTRIBUTE, _INTS_ATTRIBUTE = 1, 2, 3, 7
_EXTERNAL = 1


def read_model(data: bytes) -> Model:
    """The model in a file. Raises DecodeError if the data are invalid."""
    return _class("Model").FromString(data)


def make_model(
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[ValueInfo],
    outputs: Sequence[ValueInfo],
    constants: Sequence[Tensor],
    *,
    opsets: Sequence[tuple[str, int]],
    ir_version: int,
) -> Model:
    """A model; `opsets` are the domains of its operators, with their versions."""
    graph = _class("Graph")(node=nodes, name=name, initializer=constants, input=inputs, output=outputs)
    return _class("Model")(ir_version=ir_version, graph=graph, opset_import=starmap(make_opset, opsets))


def make_opset(domain: str, version: int) -> Any:
    """A domain of operators, such as "" for ONNX's own, with its version."""
    return _class("Opset")(domain=domain, version=version)


def make_node(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    name: str,
    domain: str | None = None,
    **attributes: Any,
) -> Node:
    """A node. Attributes are a `float`, an `int`, a `str`, or a list of `int`."""
    parts = starmap(_attribute, sorted(attributes.items()))
    return _class("Node")(input=inputs, output=outputs, name=name, op_type=operator, domain=domain, attribute=parts)


def _attribute(name: str, value: Any) -> Any:
    make = _class("Attribute")
    if isinstance(value, float):
        return make(name=name, f=value, type=_FLOAT_ATTRIBUTE)
    if isinstance(value, int):
        return make(name=name, i=value, type=_INT_ATTRIBUTE)
    if isinstance(value, str):
        return make(name=name, s=value.encode(), type=_STRING_ATTRIBUTE)
    return make(name=name, ints=value, type=_INTS_ATTRIBUTE)


def make_tensor(name: str, value: NDArray[Any]) -> Tensor:
    """A constant of the array's type and shape, which has at least one axis."""
    array = np.ascontiguousarray(value)
    data_type = _TYPES[array.dtype.name]
    return _class("Tensor")(dims=array.shape, data_type=data_type, name=name, raw_data=array.tobytes())


def numbers(tensor: Tensor) -> NDArray[np.float32]:
    """The numbers of a constant of type FLOAT."""
    flat = np.frombuffer(tensor.raw_data, "<f4") if tensor.raw_data else np.array(tensor.float_data, np.float32)
    return flat.reshape(tuple(tensor.dims))


def make_value(name: str, element: int, shape: Sequence[str | int]) -> ValueInfo:
    """The description of an input or output. A text in `shape` names an axis of any size."""
    axes = [_class("Dimension")(**{"dim_value" if isinstance(axis, int) else "dim_param": axis}) for axis in shape]
    kind = _class("TensorType")(elem_type=element, shape=_class("Shape")(dim=axes))
    return _class("ValueInfo")(name=name, type=_class("Type")(tensor_type=kind))


def other_files(model: Model) -> list[str]:
    """The names of the files to which a graph refers for its weights."""
    tensors = [tensor for tensor in model.graph.initializer if tensor.data_location == _EXTERNAL]
    return sorted({entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"})
