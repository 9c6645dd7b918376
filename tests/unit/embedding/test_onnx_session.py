"""Sessions of ONNX Runtime: products of bytes are exact, whatever the processor."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from mnemon_server.embedding.onnx_session import open_session, sums_byte_products_exactly
from onnx import TensorProto, helper, numpy_helper

DEPTH = 64


def test_sums_of_the_largest_products_are_exact(tmp_path: Path) -> None:
    # Two of these products exceed 16 bits, which is where processors without byte dot products saturate.
    matrix = np.full((DEPTH, DEPTH), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["rows", "matrix"], ["sums"])],
        "products",
        [helper.make_tensor_value_info("rows", TensorProto.UINT8, ["count", DEPTH])],
        [helper.make_tensor_value_info("sums", TensorProto.INT32, ["count", DEPTH])],
        [numpy_helper.from_array(matrix, "matrix")],
    )
    path = tmp_path / "products.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    rows = np.full((3, DEPTH), 255, np.uint8)
    (sums,) = open_session(path).run(["sums"], {"rows": rows})
    np.testing.assert_array_equal(sums, rows.astype(np.int32) @ matrix.astype(np.int32))


@pytest.mark.parametrize(
    ("cpu_info", "exact"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_vnni\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx_vnni\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd\n", False),
    ],
)
def test_only_processors_with_byte_dot_products_are_trusted(tmp_path: Path, cpu_info: str, *, exact: bool) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(cpu_info)
    assert sums_byte_products_exactly(path) is exact


def test_a_processor_that_does_not_name_its_instructions_is_not_trusted(tmp_path: Path) -> None:
    assert not sums_byte_products_exactly(tmp_path / "missing")
