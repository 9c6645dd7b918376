"""The role that each method requires, as its proto says."""

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import ServiceDescriptor
from mnemon.v1 import access_pb2 as pb

from mnemon_server.domain.access import Role

ROLES_TO_PB = {role: pb.Role.Value(f"ROLE_{role.name}") for role in Role}
ROLES: Mapping[int, Role] = {number: role for role, number in ROLES_TO_PB.items()}


def required_roles(services: Iterable[ServiceDescriptor]) -> Mapping[str, Role]:
    """The roles by path, such as "/mnemon.v1.MemoryService/CreateMemory".

    Raises:
        ValueError: the proto of a method does not say which role it requires. Then the server does not start.
    """
    roles = {}
    for service in services:
        for method in service.methods:
            role = ROLES.get(method.GetOptions().Extensions[pb.required_role])
            if role is None:
                raise ValueError(f"{method.full_name} needs the option (required_role), like every method")
            roles[f"/{service.full_name}/{method.name}"] = role
    return roles
