"""The role that each method requires, by its proto."""

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import ServiceDescriptor
from mnemon.v1 import access_pb2 as pb

from mnemon_server.domain.access import Permission, Role
from mnemon_server.wire.enums import members_of

ROLES = members_of(pb.Role, Role)


def permissions(services: Iterable[ServiceDescriptor]) -> Mapping[str, Permission]:
    """The permissions by path, such as "/mnemon.v1.MemoryService/CreateMemory".

    Raises:
        ValueError: the proto of a method does not say what it requires. Then the server does not start.
    """
    found = {}
    for service in services:
        for method in service.methods:
            options = method.GetOptions().Extensions
            role, reach = ROLES.get(options[pb.required_role]), options[pb.reach]
            if role is None or reach == pb.REACH_UNSPECIFIED:
                raise ValueError(f"{method.full_name} needs the options (required_role) and (reach), like every method")
            path = f"/{service.full_name}/{method.name}"
            found[path] = Permission(role, options[pb.open_to_operators], whole_tenant=reach == pb.REACH_TENANT)
    return found
