"""The identity file: what it may say, and how it is refused."""

from pathlib import Path

import pytest
from mnemon_server.domain.access import Principal, Role
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.services.access.identity_file import read_identity_file

from tests.support.issuers import write_identities

OPERATORS = {"tenant": "", "role_claim": "", "roles": "", "role": '"operator"'}
CERTIFICATE = '[[certificate]]\nname = "dns:robot.test"\ntenant = "acme"\nrole = "writer"\n'


def test_the_example_of_the_module_is_valid(tmp_path: Path) -> None:
    from mnemon_server.services.access import identity_file

    path = tmp_path / "identities.toml"
    example = (identity_file.__doc__ or "").partition("\n\n")[2].rpartition("\n\n")[0]
    path.write_text(example, encoding="utf-8")
    read = read_identity_file(path)
    [issuer] = read.issuers
    assert issuer.roles == {"memory-admins": Role.ADMIN, "staff": Role.WRITER}
    assert read.certificates["uri:spiffe://acme/assistant"].tenant == "acme"


def test_operators_belong_to_no_tenant(tmp_path: Path) -> None:
    table = '[[certificate]]\nname = "dns:team.test"\nrole = "operator"\n'
    read = read_identity_file(write_identities(tmp_path, "a.json", table, **OPERATORS))
    [issuer] = read.issuers
    assert (issuer.tenant, issuer.role, list(read.tenants)) == ("", Role.OPERATOR, [])
    assert read.certificates == {"dns:team.test": Principal("", "mtls:dns:team.test", Role.OPERATOR)}


def test_callers_may_be_limited_to_origins(tmp_path: Path) -> None:
    path = write_identities(tmp_path, "a.json", origins='["web", "import"]')
    path.write_text(f'{path.read_text(encoding="utf-8")}\n{CERTIFICATE}\norigins = ["web"]\n', encoding="utf-8")
    read = read_identity_file(path)
    assert read.issuers[0].origins == ("import", "web")
    assert read.certificates["dns:robot.test"].bounds.origins == ("web",)


def test_a_file_of_keys_is_looked_for_beside_the_identity_file(tmp_path: Path) -> None:
    [issuer] = read_identity_file(write_identities(tmp_path, "keys/jwks.json")).issuers
    assert issuer.keys.file == tmp_path / "keys/jwks.json"
    assert not issuer.keys.url


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": '"a:b"'}, "name must be 1 to 63"),
        ({"name": ""}, "name must be 1 to 63"),
        ({"issuer": ""}, "issuer login: issuer must be a text"),
        ({"audiences": ""}, "audiences must be a list"),
        ({"audiences": "[]"}, "audiences must be a list"),
        ({"jwks": '"http://login.example.com/jwks"'}, "jwks must be an https URL"),
        ({"jwks": '"ftp://login.example.com/jwks"'}, "is not the URL of an endpoint"),
        ({"tenant": ""}, "must have either tenant or tenant_claim"),
        ({"tenant_claim": '"org"'}, "must have either tenant or tenant_claim"),
        ({"tenant": '"../acme"'}, "tenant must be 1 to 63"),
        ({"tenants": '["acme"]'}, "tenants belongs to tenant_claim"),
        ({"role": '"admin"'}, "must have either role or role_claim"),
        ({"roles": '{ staff = "emperor" }'}, "roles.staff must be one of reader, writer, admin, operator"),
        ({"roles": ""}, "role_claim and roles belong together"),
        ({"role_claim": "", "roles": "", "role": '"admin"', "users_claim": '"sub"'}, "role must be reader or writer"),
        ({"tenant": "", "tenant_claim": '"org"', "creates_tenants": '"yes"'}, "creates_tenants must be true or false"),
        ({"creates_tenants": "true"}, "creates_tenants belongs to a tenant_claim without tenants"),
        (
            {"tenant": "", "tenant_claim": '"org"', "tenants": '["acme"]', "creates_tenants": "true"},
            "creates_tenants belongs to a tenant_claim without tenants",
        ),
        ({"roles": '{ team = "operator" }'}, "tenant must be left out for operators"),
        ({**OPERATORS, "tenant": '"acme"'}, "tenant must be left out for operators"),
        ({**OPERATORS, "tenant_claim": '"org"'}, "tenant_claim must be left out for operators"),
        ({**OPERATORS, "users_claim": '"sub"'}, "role must be reader or writer"),
        ({"roles": '{ team = "operator", staff = "writer" }', "tenant": ""}, "must have either tenant or tenant_claim"),
        ({"users_claim": "7"}, "users_claim must be a list"),
        ({"leeway_s": "601"}, "leeway_s must be 0 to 600"),
        ({"refresh_s": "true"}, "refresh_s must be 1 to"),
        ({"algorithms": '["HS256"]'}, "'algorithms' is not a key"),
        ({"secret": '"x"'}, "'secret' is not a key"),
    ],
)
def test_an_issuer_that_says_too_little_or_too_much_is_refused(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    path = write_identities(tmp_path, "https://login.example.com/jwks", **changes)
    with pytest.raises(ConfigurationError, match=message):
        read_identity_file(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CERTIFICATE * 2, "two tables have the same name"),
        (CERTIFICATE.replace("dns:", "ip:"), "name must look like"),
        (CERTIFICATE.replace("writer", "root"), "certificate dns:robot.test: role must be one of"),
        (CERTIFICATE.replace("writer", "operator"), "tenant must be left out for operators"),
        (CERTIFICATE.replace('tenant = "acme"', ""), "certificate dns:robot.test: tenant must be 1 to 63"),
        (CERTIFICATE + 'namespaces = ["a..b"]', r"namespaces\[0\]"),
        (CERTIFICATE + 'origins = ["press"]', r"origins\[0\]: must be one of 'user', 'agent', 'tool', 'import', 'web'"),
        (CERTIFICATE.replace("writer", "admin") + 'users = ["ada"]', "role must be reader or writer"),
        (CERTIFICATE.replace("writer", "admin") + 'origins = ["web"]', "role must be reader or writer"),
        ("[issuer]\nname = 'x'", r"must be written as \[\[issuer\]\] tables"),
        ("[[user]]", "'user' is not a key"),
        ("[[", "is not TOML"),
    ],
)
def test_a_file_that_is_not_valid_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        read_identity_file(path)


def test_two_issuers_of_one_name_or_url_are_refused(tmp_path: Path) -> None:
    other = write_identities(tmp_path, "a.json", name='"other"').read_text(encoding="utf-8")
    with pytest.raises(ConfigurationError, match="two tables have the same issuer"):
        read_identity_file(write_identities(tmp_path, "a.json", other))


def test_a_file_that_others_may_change_is_refused(tmp_path: Path) -> None:
    path = write_identities(tmp_path, "a.json")
    path.chmod(0o646)
    with pytest.raises(ConfigurationError, match="chmod o-w"):
        read_identity_file(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_identity_file(tmp_path / "missing.toml")
