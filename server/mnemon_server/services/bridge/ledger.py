"""The state and the policy of the bridge as they are kept: read once, and written with what they are about."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mnemon_server.domain.bridge import RoutingPolicy, UpdatedPolicy
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.bridge.routing import policy_of, policy_values
from mnemon_server.services.bridge.state import POLICY_KEY, STATE_KEY, State, state_from_json, state_to_json
from mnemon_server.services.shared.completions import completion
from mnemon_server.services.shared.offload import Offload

_Kept = tuple[str | None, str | None]
"""State and policy as they are kept; None where neither was."""


class ChangedError(Exception):
    """What was to be written was worked out from a state or a policy that no longer holds; nothing was written."""


class BridgeLedger:
    """Belongs to one event loop; any number of tasks may use it.

    Every transaction makes sure that what is kept is what was last read or written here. So nothing is written twice,
    even where it is unknown whether a transaction was committed: the next one finds out.
    """

    def __init__(self, vault: Vault, offload: Offload) -> None:
        self._vault = vault
        self._offload = offload
        self._lock = asyncio.Lock()
        self._kept: _Kept | None = None
        self._kept_position = self._version = 0
        self.state = State()
        """With positions that may be ahead of those that are kept: nothing happened in between."""
        self.policy = RoutingPolicy()
        self.was_loaded = False
        """Whether state and policy were ever read; they may have been changed by somebody else since."""

    @property
    def version(self) -> int:
        """Grows whenever anything but the bridge itself changed the state or the policy, or may have."""
        return self._version

    def move(self, **progress: Any) -> None:
        """Notes, for the time being in memory alone, that there was nothing to do up to some positions."""
        for name, position in progress.items():
            # What was read meanwhile may be further on.
            progress[name] = position if name == "ahead_pruned" else max(position, getattr(self.state, name))
        self.state = replace(self.state, **progress)

    async def load(self) -> None:
        """Reads them, unless that was done."""
        async with self._lock:
            await self._load()

    async def commit(self, version: int, program: Callable[[VaultTransaction, State], State]) -> None:
        """Runs a program of the bridge and keeps the state that it returns, in one transaction.

        Raises:
            ChangedError: a call changed something since `version`, or somebody else did.
            and what the program raises, and the future of a transaction.
        """
        async with self._lock:
            if version != self._version or self._kept is None:
                raise ChangedError
            await self._write(program)

    async def change(
        self,
        program: Callable[[VaultTransaction, State], State],
        *,
        answer: Callable[[], str] = str,
        request: RequestKey | None = None,
    ) -> TransactionReceipt:
        """Does the same for a call, whatever was changed before; `answer` is what is kept for its request."""
        async with self._lock:
            while True:
                await self._load()
                with suppress(ChangedError):
                    receipt = await self._write(program, answer, request)
                    self._version += 1
                    return receipt

    async def update_policy(
        self, change: Callable[[RoutingPolicy], RoutingPolicy], request: RequestKey | None = None
    ) -> UpdatedPolicy:
        """Changes the policy, for everything that is handled from now on."""
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
        """Writes the positions where they are so far ahead of those that are kept."""
        async with self._lock:
            if self._kept is not None and self.state.seen - self._kept_position >= distance:
                await self._write(lambda _, state: state)

    async def _load(self) -> None:
        if self._kept is None:
            self._take(await self._offload(_read, self._vault))
            self._version += 1
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

        # Whatever goes wrong, and be it that nobody waits for it any more: what is kept then is read anew.
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
