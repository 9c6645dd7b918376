"""The stored state and policy of the bridge: read once, and written in the transaction of the change they describe."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mnemon_server.domain.bridge import RoutingPolicy, UpdatedPolicy
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.bridge.routing import policy_of, policy_values
from mnemon_server.services.bridge.state import POLICY_KEY, STATE_KEY, State, state_from_json, state_to_json

_Kept = tuple[str | None, str | None]
"""The stored state and policy; None for one that was never stored."""


class ChangedError(MnemonError):
    """The state or the policy changed since the caller read it; nothing was written. A MnemonError is not logged."""


class BridgeLedger:
    """Reads and writes state and policy. Belongs to one event loop; any number of tasks may use it.

    Every transaction checks that the stored values are those last read or written here. So nothing is written twice,
    even if it is unknown whether a transaction was committed: the next one finds out.
    """

    def __init__(self, vault: Vault, offload: Offload) -> None:
        self._vault = vault
        self._offload = offload
        self._lock = asyncio.Lock()
        self._kept: _Kept | None = None
        self._kept_position = 0
        self.version = 0
        """Increases whenever anything but the bridge itself changed, or may have changed, the state or the policy."""
        self.state = State()
        """Its positions may be ahead of the stored ones: nothing happened in between."""
        self.policy = RoutingPolicy()
        self.was_loaded = False
        """Whether state and policy were ever read; someone else may have changed them since."""

    def move(self, **progress: Any) -> None:
        """Notes in memory that there was nothing to do up to some positions; `keep` stores them."""
        for name, position in progress.items():
            # Another task may have moved a position further meanwhile.
            progress[name] = position if name == "ahead_pruned" else max(position, getattr(self.state, name))
        self.state = replace(self.state, **progress)

    async def load(self) -> None:
        """Reads state and policy, unless they were read before."""
        async with self._lock:
            await self._load()

    async def commit(self, version: int, program: Callable[[VaultTransaction, State], State]) -> None:
        """Runs a program of the bridge and stores the state that it returns, in one transaction.

        Raises:
            ChangedError: a call or someone else changed something since `version`.
            and the errors of the program and of a transaction.
        """
        async with self._lock:
            if version != self.version or self._kept is None:
                raise ChangedError
            await self._write(program)

    async def change(
        self,
        program: Callable[[VaultTransaction, State], State],
        *,
        answer: Callable[[], str] = str,
        request: RequestKey | None = None,
    ) -> TransactionReceipt:
        """Does the same for a call, whatever changed before; stores `answer` under its request id."""
        async with self._lock:
            while True:
                await self._load()
                with suppress(ChangedError):
                    receipt = await self._write(program, answer, request)
                    self.version += 1
                    return receipt

    async def update_policy(
        self, change: Callable[[RoutingPolicy], RoutingPolicy], request: RequestKey | None = None
    ) -> UpdatedPolicy:
        """Changes the policy for all events that are handled from now on."""
        text = ""

        def program(tx: VaultTransaction, state: State) -> State:
            nonlocal text
            after = change(self.policy)
            text = json.dumps(policy_values(after), ensure_ascii=False)
            if after != self.policy:
                tx.set_value(POLICY_KEY, text)
            return state

        receipt = await self.change(program, answer=lambda: text, request=request)
        return UpdatedPolicy(policy_of(json.loads(receipt.answer)), receipt.replayed)

    async def keep(self, *, distance: int = 1) -> None:
        """Stores the positions if they are at least `distance` ahead of the stored ones."""
        async with self._lock:
            if self._kept is not None and self.state.seen - self._kept_position >= distance:
                await self._write(lambda _, state: state)

    async def _load(self) -> None:
        if self._kept is None:
            self._take(await self._offload(_read, self._vault))
            self.version += 1
            self.was_loaded = True

    async def _write(
        self,
        program: Callable[[VaultTransaction, State], State],
        answer: Callable[[], str] = str,
        request: RequestKey | None = None,
    ) -> TransactionReceipt:
        kept, after = self._kept, self._kept

        def run(tx: VaultTransaction) -> str:
            nonlocal after
            if (tx.value(STATE_KEY), tx.value(POLICY_KEY)) != kept:
                raise ChangedError
            text = state_to_json(program(tx, self.state))
            tx.set_value(STATE_KEY, text)
            after = text, tx.value(POLICY_KEY)
            return answer()

        # If this fails or is cancelled, the stored values are read again.
        self._kept = None
        receipt = await completion(self._vault.transact(run, request=request))
        assert after is not None  # noqa: S101 - a call before has read them
        self._take(after)
        return receipt

    def _take(self, kept: _Kept) -> None:
        state, policy = kept
        self.state = state_from_json(state)
        self.policy = policy_of(json.loads(policy)) if policy else RoutingPolicy()
        self._kept, self._kept_position = kept, self.state.seen


def _read(vault: Vault) -> _Kept:
    return vault.value(STATE_KEY), vault.value(POLICY_KEY)
