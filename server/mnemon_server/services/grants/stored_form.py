"""Grants as documents of the collection GRANTS."""

from datetime import datetime
from typing import cast

from mnemon_server.domain.access.grants import Grant
from mnemon_server.domain.access.shares import Share
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import GRANTS
from mnemon_server.domain.damage import reads
from mnemon_server.domain.documents import Document
from mnemon_server.domain.namespaces import Namespace, decode_namespace, encode_namespace


def to_document(grant: Grant) -> Document:
    """The document of a grant."""
    share = grant.share
    return Document(
        grant.grant_id,
        "",
        scope=share.scope,
        fields={
            "subject": grant.subject,
            "namespace": "" if share.namespace is None else encode_namespace(share.namespace),
            "may_write": share.may_write,
            "granted_by": grant.granted_by,
            "expire_time": grant.expires_at,
            "accept_time": grant.accepted_at,
        },
    )


@reads(GRANTS)
def to_grant(document: Document) -> Grant:
    """The grant of a document."""
    fields = document.fields
    namespace = str(fields["namespace"])
    return Grant(
        subject=str(fields["subject"]),
        share=Share(
            document.scope,
            Namespace.stored(decode_namespace(namespace)) if namespace else None,
            may_write=bool(fields["may_write"]),
        ),
        created_at=document.create_time or EPOCH,
        granted_by=str(fields["granted_by"]),
        expires_at=cast(datetime | None, fields["expire_time"]),
        accepted_at=cast(datetime | None, fields["accept_time"]),
    )
