"""A method whose proto does not say whom it serves keeps the server from starting."""

from collections.abc import Iterable

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, MethodOptions
from google.protobuf.descriptor_pool import DescriptorPool
from mnemon.v1 import access_pb2 as pb
from mnemon_server.domain.access import Role
from mnemon_server.transport.roles import permissions


def service_with(options: MethodOptions) -> Iterable[ServiceDescriptor]:
    """A service with one method, Tea.Pour."""
    file = FileDescriptorProto(name="tea.proto", package="tea", syntax="proto3")
    file.message_type.add(name="Cup")
    service = file.service.add(name="Tea")
    service.method.add(name="Pour", input_type=".tea.Cup", output_type=".tea.Cup", options=options)
    pool = DescriptorPool()
    pool.Add(file)
    return [pool.FindServiceByName("tea.Tea")]


def options_of(role: int | None, reach: int | None, *, operators: bool = False) -> MethodOptions:
    options = MethodOptions()
    if role is not None:
        options.Extensions[pb.required_role] = role
    if reach is not None:
        options.Extensions[pb.reach] = reach
    options.Extensions[pb.open_to_operators] = operators
    return options


@pytest.mark.parametrize(
    ("role", "reach"),
    [(None, None), (None, pb.REACH_TENANT), (pb.ROLE_WRITER, None), (pb.ROLE_WRITER, pb.REACH_UNSPECIFIED)],
)
def test_a_method_must_name_its_role_and_its_reach(role: int | None, reach: int | None) -> None:
    with pytest.raises(ValueError, match=r"tea\.Tea\.Pour needs the options"):
        permissions(service_with(options_of(role, reach)))


def test_a_method_requires_what_its_options_say() -> None:
    for reach, whole in ((pb.REACH_TENANT, True), (pb.REACH_BOUNDS, False)):
        for operators in (True, False):
            found = permissions(service_with(options_of(pb.ROLE_WRITER, reach, operators=operators)))
            (permission,) = found.values()
            assert list(found) == ["/tea.Tea/Pour"]
            assert (permission.role, permission.whole_tenant) == (Role.WRITER, whole)
            assert permission.allows(Role.OPERATOR) is operators
