# Generated from _async/facts.py by `make generate`: change that file instead.
"""The blocking client's object for facts."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from mnemon._bulk import ANSWER_TIMEOUT_S
from mnemon._bulk_methods import BulkPutFacts
from mnemon._local_time import Moment
from mnemon._messages.calls import FoundFacts, renewals_from_pb
from mnemon._messages.convert import moment, namespace_to_pb
from mnemon._messages.filters import facts_to_pb, ids_filter
from mnemon._messages.records import fact_to_pb, names_to_pb
from mnemon._messages.translation import read, request
from mnemon._sync.bulk import send_all
from mnemon._sync.service import Service, Stub
from mnemon._values import documents as values
from mnemon._values import facts
from mnemon.v1 import facts_pb2 as pb
from mnemon.v1.facts_pb2_grpc import FactServiceStub


class Facts(Service):
    """Facts, as `client.facts`: JSON objects under a key of a namespace.

        with Client() as memory:
            memory.facts.put(("user", "ada"), "tea", {"content": "Ada likes green tea.", "category": "drinks"})
            memory.facts.search("What does she drink?", namespace=("user", "ada"), where={"category": "drinks"})

    The same key in another namespace is another fact: every method that names a key names its namespace, too.
    """

    _stub = Stub(FactServiceStub)

    def put(
        self,
        namespace: Iterable[str],
        key: str | None,
        value: Mapping[str, Any],
        *,
        metadata: Mapping[str, values.MetadataValue] | None = None,
        index: facts.FactIndex = None,
        ttl: timedelta | None = None,
        origin: str = "",
        origin_name: str = "",
        create_time: Moment | None = None,
        update_time: Moment | None = None,
        mode: str = facts.PutMode.UPSERT,
        embedding: Sequence[float] | None = None,
        expected_revision: int | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> facts.FactReceipt:
        """Stores a fact, replacing the one under its namespace and key. If the key is None, the server chooses one.

        The mode "create" stores it only if the key is free; otherwise it raises FactExistsError. The mode "update"
        stores it only if the fact exists; otherwise it raises FactNotFoundError. With `expected_revision`, it stores
        only if the fact has this revision (0: if it does not exist); otherwise it raises RevisionMismatchError or
        FactNotFoundError. `embedding` is the vector of what is searched; without it the server embeds the texts. The
        same `request_id` with the same fact gets the same answer for 24 hours.
        """
        fact = facts.Fact(
            namespace=tuple(namespace_to_pb("namespace", namespace)),
            key="" if key is None else key,
            value=value,
            metadata=metadata or {},
            create_time=None if create_time is None else moment("create_time", create_time),
            update_time=None if update_time is None else moment("update_time", update_time),
            ttl=ttl,
            index=index,
            origin=origin,
            origin_name=origin_name,
        )
        asked = request(
            pb.PutFactRequest,
            fact=fact_to_pb(fact),
            mode=mode,
            embedding=embedding,
            expected_revision=expected_revision,
            request_id=request_id,
            ack=ack,
        )
        return read(facts.FactReceipt, self._call(self._stub.PutFact, asked, timeout))

    def put_many(
        self,
        items: Iterable[facts.FactLike],
        *,
        mode: str = facts.PutMode.UPSERT,
        ack: str = values.AckLevel.DURABLE,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Generator[facts.PutResult, None, None]:
        """Stores many facts, and yields one result for each, in order. Nothing is sent until you iterate.

        An item is a `Fact`, or a pair of a `Fact` and its vector. The client reads items lazily and sends them in
        batches, a few ahead of the results. An invalid item fails alone. If the connection breaks, the client resumes
        where it broke, and each item is stored once. It raises an error only if the server stays unavailable or does
        not answer a batch within `timeout` seconds.
        """
        method = BulkPutFacts(mode=mode, ack=ack)
        return send_all(self._connection.target, lambda: self._stub.BulkPutFacts, method, items, timeout)

    def get(
        self,
        namespace: Iterable[str],
        key: str,
        *,
        versions: bool = False,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> facts.Fact:
        """Returns one fact. Raises FactNotFoundError if it does not exist or has expired.

        With `versions`, it includes the earlier versions.
        """
        asked = request(pb.GetFactRequest, as_of=as_of, namespace=namespace, key=key, show_versions=versions)
        response = self._call(self._stub.GetFact, asked, timeout)
        return read(facts.Fact, response.fact)

    def get_many(
        self,
        names: Iterable[tuple[Iterable[str], str]],
        *,
        timeout: float | None = None,
    ) -> tuple[facts.Fact, ...]:
        """Returns the facts under 1 to 1,000 names, each a pair of a namespace and a key, in their order.

        Facts that do not exist are omitted. If the facts exceed 3 MiB, this takes several calls.
        """
        asked = request(pb.BatchGetFactsRequest, names=names_to_pb(names))
        wanted, found = list(asked.names), FoundFacts()
        while found.take(response := self._call(self._stub.BatchGetFacts, asked, timeout)):
            asked = request(pb.BatchGetFactsRequest, names=response.remaining)
        return found.in_order(wanted)

    def renew(
        self,
        names: Iterable[tuple[Iterable[str], str]],
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> tuple[facts.RenewResult, ...]:
        """Restarts the ttl of the facts under 1 to 1,000 names, and returns one result for each, in their order.

        This does not count as a change: revisions stay the same, and watchers are not notified. Reading a fact does not
        renew it.
        """
        asked = request(pb.RenewFactsRequest, names=names_to_pb(names), request_id=request_id)
        return renewals_from_pb(asked, self._call(self._stub.RenewFacts, asked, timeout))

    def search(
        self,
        query: str = "",
        *,
        namespace: Iterable[str] = (),
        subtree: bool = False,
        where: facts.FactWhere | None = None,
        vector: Sequence[float] | None = None,
        limit: int = 10,
        top_k: int | None = None,
        offset: int = 0,
        mode: str | None = None,
        min_score: float = 0.0,
        min_trust: str | None = None,
        view: str = values.View.STANDARD,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> facts.FactAnswer:
        """Finds the facts of a namespace most relevant to a text or a vector, best first, up to `limit`, also `top_k`.

        A blank query without a vector returns the facts that match, in the order of `list`, without scores. `subtree`
        includes the namespaces below; then an empty namespace means all. `where` maps a key of the value or the
        metadata to the value that it must equal, or to operators that must all hold: $eq, $ne, $gt, $gte, $lt, $lte,
        $in, $nin. It can also be an expression such as `F("value.score") >= 3`. `mode` is "hybrid", "vector" or
        "keyword"; None means hybrid, or vector if only a vector is given. `view` is "ids" (namespaces, keys, revisions
        and scores only), "standard", or "full", which adds embeddings. `min_trust` excludes facts from less trusted
        origins: "user", "agent", "tool", "import" or "web".
        """
        asked = request(
            pb.SearchFactsRequest,
            as_of=as_of,
            query=query,
            filter=facts_to_pb(namespace, subtree=subtree, where=where, min_trust=min_trust),
            vector=vector,
            limit=limit if top_k is None else top_k,
            offset=offset,
            mode=mode,
            min_score=min_score,
            view=view,
        )
        return read(facts.FactAnswer, self._call(self._stub.SearchFacts, asked, timeout))

    def list(
        self,
        namespace: Iterable[str] = (),
        *,
        subtree: bool = False,
        where: facts.FactWhere | None = None,
        versions: bool = False,
        page_size: int = 0,
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> Iterator[facts.Fact]:
        """Yields all facts of a namespace that match, in the order in which they were first stored.

        The arguments select facts as in `search`. `timeout` applies to each page.
        """
        labels = tuple(namespace_to_pb("namespace", namespace))
        how = {
            "subtree": subtree,
            "where": where,
            "versions": versions,
            "page_size": page_size,
            "as_of": as_of,
            "timeout": timeout,
        }
        return self._items(self.list_page, labels, **how)

    def list_page(
        self,
        namespace: Iterable[str] = (),
        *,
        subtree: bool = False,
        where: facts.FactWhere | None = None,
        versions: bool = False,
        page_size: int = 0,
        page_token: str = "",
        as_of: Moment | None = None,
        timeout: float | None = None,
    ) -> facts.FactPage:
        """Returns one page of facts: 100 if `page_size` is 0, at most 1,000, and at most 3 MiB of values.

        The other arguments must be those of the previous page. Raises InvalidPageTokenError if they differ.
        """
        asked = request(
            pb.ListFactsRequest,
            as_of=as_of,
            filter=facts_to_pb(namespace, subtree=subtree, where=where),
            page_size=page_size,
            page_token=page_token,
            show_versions=versions,
        )
        return read(facts.FactPage, self._call(self._stub.ListFacts, asked, timeout))

    def list_namespaces(
        self,
        *,
        prefix: Iterable[str] = (),
        suffix: Iterable[str] = (),
        max_depth: int = 0,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> Iterator[facts.Namespace]:
        """Yields the namespaces that hold facts, each before those below it.

        `prefix` and `suffix` are the first and last labels; "*" stands for any one label. Deeper namespaces are cut to
        `max_depth` labels and appear once; 0 means no cut. `timeout` applies to each page.
        """
        first, last = (tuple(namespace_to_pb(*each)) for each in (("prefix", prefix), ("suffix", suffix)))
        return self._items(
            self.list_namespaces_page,
            prefix=first,
            suffix=last,
            max_depth=max_depth,
            page_size=page_size,
            timeout=timeout,
        )

    def list_namespaces_page(
        self,
        *,
        prefix: Iterable[str] = (),
        suffix: Iterable[str] = (),
        max_depth: int = 0,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> facts.NamespacePage:
        """Returns one page of namespaces: 100 if `page_size` is 0, at most 1,000.

        The other arguments must be those of the previous page. Raises InvalidPageTokenError if they differ.
        """
        asked = request(
            pb.ListNamespacesRequest,
            prefix=prefix,
            suffix=suffix,
            max_depth=max_depth,
            page_size=page_size,
            page_token=page_token,
        )
        return read(facts.NamespacePage, self._call(self._stub.ListNamespaces, asked, timeout))

    def versions(
        self, namespace: Iterable[str], key: str, *, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[facts.PastFact]:
        """Yields the earlier versions of a fact, newest first, if it has any. `timeout` applies to each page."""
        return self._items(self.versions_page, namespace, key, page_size=page_size, timeout=timeout)

    def versions_page(
        self,
        namespace: Iterable[str],
        key: str,
        *,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> facts.PastFactPage:
        """Returns one page of the earlier versions of a fact: 100 if `page_size` is 0, at most 1,000."""
        kind = pb.ListFactVersionsRequest
        asked = request(kind, namespace=namespace, key=key, page_size=page_size, page_token=page_token)
        return read(facts.PastFactPage, self._call(self._stub.ListFactVersions, asked, timeout))

    def restore_version(
        self,
        namespace: Iterable[str],
        key: str,
        version_id: str,
        *,
        expected_revision: int | None = None,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> facts.Fact:
        """Makes an earlier version of a fact the current one, also of one that was deleted, and returns it.

        Raises VersionNotFoundError if the fact has no such version.
        """
        asked = request(
            pb.RestoreFactVersionRequest,
            namespace=namespace,
            key=key,
            version_id=version_id,
            expected_revision=expected_revision,
            request_id=request_id,
            ack=ack,
        )
        response = self._call(self._stub.RestoreFactVersion, asked, timeout)
        return read(facts.Fact, response.fact)

    def delete(
        self,
        namespace: Iterable[str],
        key: str,
        *,
        expected_revision: int | None = None,
        allow_missing: bool = False,
        ack: str = values.AckLevel.DURABLE,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.WriteReceipt:
        """Permanently removes a fact and its earlier versions. Raises FactNotFoundError if it does not exist.

        With `allow_missing`, the outcome is then MISSING instead. With `expected_revision`, it removes the fact only if
        it has this revision; otherwise it raises RevisionMismatchError.
        """
        asked = request(
            pb.DeleteFactRequest,
            namespace=namespace,
            key=key,
            expected_revision=expected_revision,
            allow_missing=allow_missing,
            request_id=request_id,
            ack=ack,
        )
        response = self._call(self._stub.DeleteFact, asked, timeout)
        return read(values.WriteReceipt, response.receipt)

    def delete_many(
        self,
        namespace: Iterable[str],
        keys: Iterable[str] | None = None,
        *,
        subtree: bool = False,
        where: facts.FactWhere | None = None,
        dry_run: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> values.BulkDeleteReceipt:
        """Permanently removes facts of a namespace, in one transaction: those with these keys, or all that match.

        The arguments select facts as in `search`. Keys that do not exist are not counted. With `dry_run`, it only
        counts. Raises InvalidArgumentError with both `keys` and `where`.
        """
        if keys is not None:
            where = ids_filter("keys", keys, "key", alone=where is None)
        chosen = facts_to_pb(namespace, subtree=subtree, where=where)
        asked = request(pb.DeleteFactsRequest, filter=chosen, dry_run=dry_run, request_id=request_id)
        return read(values.BulkDeleteReceipt, self._call(self._stub.DeleteFacts, asked, timeout))
