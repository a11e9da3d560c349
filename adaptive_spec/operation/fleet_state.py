"""Fleet state: what each replica has learned, as its own object where new replicas find it.

An object's name consists of the policy's name, a digest of the model, drafter and configuration,
the host, and a random part: no replica overwrites another's. A replica that starts reads the newest
`MOST_READ` of its name and gives them to the policy, which merges them. Objects of another device,
version or parallelism count less, and their step times not at all; old ones count less with every
day.

The store is read once, before the server serves, for `READ_SECONDS` at most, and written by a
thread: a store that does not answer costs no step.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from adaptive_spec.bounded_read import check_plain, decode_json
from adaptive_spec.config import Config
from adaptive_spec.errors import PolicyError
from adaptive_spec.operation.object_store import Found, ObjectStore, open_store
from adaptive_spec.operation.output_file import Retry
from adaptive_spec.operation.saved_state import LARGEST_BYTES, PROFILE, Profiles
from adaptive_spec.operation.status import Counters
from adaptive_spec.policy import POLICY_ERRORS, Peer, Policy, join_fleet
from adaptive_spec.step import Capability

MOST_READ = 64
"""Objects that a replica reads."""
MOST_KEPT = 512
"""Objects of a name that are left; the oldest are removed by replicas that start."""
READ_SECONDS = 10.0
"""Time that a start waits for the store."""
OTHER_SERVERS = (
    "adaptive_spec",
    "asynchronous",
    "capability",
    "data_parallel",
    "device",
    "engine",
    "graphs",
    "model_runner",
    "pipeline_parallel",
    "tensor_parallel",
)
"""Parts of an identity by which replicas may differ and still meet the same acceptance."""
_DAYS_KEPT = 30.0
_DOUBT_OF_A_DAY = 0.03
"""Variance that a day adds to what a replica has learned, as a share of the prior's."""
_DOUBT_OF_OTHERS = 0.1
"""The same, of another device or version."""
_SAVE_SECONDS = 30.0
_STUCK_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
_LEAST_STEPS = 300
"""Outcomes before a replica writes its object: one that starts has nothing to tell yet."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Content of an object.

    Attributes:
        schema: version of this format.
        identity: model, drafter, hardware and so on, as the adapter reports them.
        policy, options: policy that learned the state.
        written: seconds since 1970.
        state: result of `Policy.state`.
    """

    schema: int
    identity: dict[str, str]
    policy: str
    options: dict[str, Any]
    written: float
    state: dict[str, Any]


class FleetState:
    """Reads the objects of other replicas once, and writes this one's.

    No method raises, and after `take_up` none waits for the store.

    Args:
        url: folder or fsspec URL; empty: nothing is shared.
        identity: names and values that the state belongs to.
        retry: attempts to write.
        logger: logger of the engine.
    """

    def __init__(
        self, url: str, identity: Mapping[str, str], retry: Retry, logger: logging.Logger
    ) -> None:
        self._url, self._retry, self._log = url, retry, logger
        self._identity = dict(sorted(identity.items()))
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())[:63]
        self._replica = f"{host}-{secrets.token_hex(4)}"
        self._writer = _Writer(url)
        self._saved_at, self._outcomes = math.nan, 0
        self._trusted = True
        self._profiles = Profiles()
        self._kept: dict[str, dict[str, Any]] = {}
        """State of each policy that has decided here, by the start of its objects' names."""

    @classmethod
    def from_config(
        cls,
        config: Config,
        identity: Mapping[str, str] | None,
        counters: Counters,
        logger: logging.Logger,
    ) -> FleetState:
        """Build from the configuration; without an identity nothing is shared, with a warning."""
        url = config.state or ""
        if url and identity is None:
            logger.warning("adaptive_spec: `state` is not used with this engine")
            url = ""
        retry = Retry(f"fleet state {url!r}", counters.output_failed, logger)
        return cls(url, identity or {}, retry, logger)

    def take_up(self, policy: Policy, config: Config, capability: Capability) -> bool:
        """Start a new policy from what other replicas have learned; return whether any had."""
        if not self._url or not self._trusted:
            return False
        peers: list[Peer] = []
        told: list[str] = []
        error: list[BaseException] = []
        late = threading.Event()

        def read() -> None:
            try:
                found, refused = self._peers(config)
            except BaseException as raised:  # whatever a driver of fsspec raises
                error.append(raised)
                return
            if not late.is_set():
                peers.extend(found)
                told.extend(refused)

        reader = threading.Thread(target=read, name="adaptive_spec fleet state", daemon=True)
        reader.start()
        reader.join(READ_SECONDS)
        if reader.is_alive():
            late.set()
            self._log.warning(
                "adaptive_spec: state %r: no answer within %.0f s; learning starts anew",
                self._url,
                READ_SECONDS,
            )
            return False
        if error:
            self._log.warning(
                "adaptive_spec: state %r is not read, learning starts anew: %s: %s",
                self._url,
                type(error[0]).__name__,
                " ".join(str(error[0]).split())[:300],
            )
            return False
        try:
            told += join_fleet(policy, peers, capability) if peers else []
        except POLICY_ERRORS as raised:
            self._log.warning(
                "adaptive_spec: state %r is not used, learning starts anew: %s", self._url, raised
            )
            return False
        if told:
            self._log.warning(
                "adaptive_spec: state %r: %d objects are not used; the first: %s",
                self._url,
                len(told),
                told[0],
            )
        used = bool(peers) and bool(policy.state())
        if used:
            alike = sum(peer.alike for peer in peers)
            self._log.info(
                "adaptive_spec: policy %s starts from %d objects under %r, %d of them of servers "
                "of the same kind",
                config.policy,
                len(peers),
                self._url,
                alike,
            )
        return used

    def _peers(self, config: Config) -> tuple[list[Peer], list[str]]:
        """Return what other replicas have written, and why objects are not used."""
        store, start = open_store(self._url), self._start(config)
        now, found = time.time(), store.list(start)
        listed = [each for each in found if each.name.endswith(".json")]
        listed.sort(key=lambda each: -each.written)
        peers, refused = [], []
        for each in listed[:MOST_READ]:
            try:
                peers.append(self._peer(store, each, config, now))
            except FileNotFoundError:
                continue  # just removed
            except (OSError, ValueError, PolicyError) as error:
                refused.append(f"{each.name}: {' '.join(str(error).split())[:200]}")
        for each in {*listed[MOST_KEPT:], *(each for each in found if _is_old(each, now))}:
            store.remove(each.name)
        return [each for each in peers if each is not None], refused

    def _peer(self, store: ObjectStore, found: Found, config: Config, now: float) -> Peer | None:
        """Return an object as a peer; None if it is too old. Raises if it cannot be used."""
        if found.size > LARGEST_BYTES:
            raise OSError(f"more than {LARGEST_BYTES} bytes")
        shared: Shared = decode_json(store.read(found.name, LARGEST_BYTES), Shared)
        if shared.schema != 1 or self._kin(config, shared.identity) != self._kin(
            config, self._identity
        ):
            raise ValueError("the state belongs to another model or drafter")
        if (shared.policy, shared.options) != (config.policy, config.options):
            raise ValueError("the state belongs to another policy")
        days = max(now - shared.written, 0.0) / 86_400.0
        if days > _DAYS_KEPT:
            return None
        alike = shared.identity == self._identity
        doubt = _DOUBT_OF_A_DAY * days + (0.0 if alike else _DOUBT_OF_OTHERS)
        return Peer(name=found.name, state=shared.state, doubt=doubt, alike=alike)

    def refresh(self, now: float, policy: Policy, config: Config) -> None:
        """Write if the last object is old enough; called after each outcome."""
        if not self._url:
            return
        self._outcomes += 1
        if math.isnan(self._saved_at):
            self._saved_at = now
        self._report(now)
        if not 0 <= now - self._saved_at <= _SAVE_SECONDS:
            self.save(now, policy, config)

    def save(self, now: float, policy: Policy, config: Config) -> None:
        """Hand the state to the thread that writes."""
        if not self._url or self._outcomes < _LEAST_STEPS or not self._trusted:
            return
        self._saved_at = now
        if self._retry.due(now):
            try:
                self._hand_over(policy, config)
            except Exception as error:
                self._retry.failed(now, error)

    def resume(self, policy: Policy, config: Config) -> None:
        """Let a policy that has decided here before go on from there; the store is not read."""
        if state := self._kept.get(self._start(config) if self._url else ""):
            try:
                policy.restore(state)
            except POLICY_ERRORS as error:
                self._log.warning("adaptive_spec: learning starts anew: %s", error)

    def _hand_over(self, policy: Policy, config: Config) -> None:
        try:
            state = policy.state()
            check_plain(state)
        except POLICY_ERRORS as error:
            raise ValueError(f"state of policy {config.policy}: {error}") from error
        if not state:
            return
        start = self._start(config)
        self._kept[start] = dict(state)
        shared = Shared(
            schema=1,
            identity=self._identity,
            policy=config.policy,
            options=config.options,
            written=time.time(),
            state=self._kept[start],
        )
        self._writer.put(f"{start}{self._replica}.json", shared)

    def _report(self, now: float) -> None:
        """Count what the thread has met."""
        written, error = self._writer.outcome()
        if error is not None:
            self._retry.failed(now, error)
        elif written:
            self._retry.attempt(now, lambda: None)  # says that it works again

    def close(self, now: float, policy: Policy, config: Config) -> None:
        """Write for the last time, and wait for it for a moment."""
        self.save(now, policy, config)
        self._writer.close(_CLOSE_SECONDS)
        self._report(now)

    def distrust(self) -> None:
        """Read and write no more: the policy has failed with what it learned."""
        if self._url and self._trusted:
            self._log.warning("adaptive_spec: state %r is not used again", self._url)
            self._trusted = False
            self._writer.remove()

    def drop(self) -> None:
        """Remove this replica's object: it was learned from other weights."""
        self._outcomes = 0
        self._kept.clear()
        self._writer.remove()

    def _start(self, config: Config) -> str:
        """Return what the names of all objects begin with that this policy may use."""
        owner = self._kin(config, self._identity), config.options
        digest = hashlib.sha256(msgspec.json.encode(owner, order="sorted")).hexdigest()[:12]
        policy = re.sub(r"[^\w.-]", "_", config.policy.rpartition(":")[2])[:64]
        return f"{policy}-{digest}-"

    def _kin(self, config: Config, identity: Mapping[str, str]) -> dict[str, str]:
        """Return the part of an identity that acceptance depends on."""
        kin = {name: value for name, value in identity.items() if name not in OTHER_SERVERS}
        return {**kin, PROFILE: self._profiles.of(config)}


def _is_old(found: Found, now: float) -> bool:
    """Return whether an object is past its days, or left half written an hour ago."""
    kept = 3600.0 if found.name.endswith(".new") else 86_400.0 * _DAYS_KEPT
    return 0.0 < found.written < now - kept


class _Writer:
    """A thread that writes the newest content of one object, begun with the first one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Condition()
        self._next: tuple[str, Shared | None] | None = None
        self._name = ""
        self._busy_since = math.inf
        self._written = False
        self._error: Exception | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def put(self, name: str, shared: Shared) -> None:
        """Write an object next, in place of one that waits."""
        self._hand(name, shared)

    def remove(self) -> None:
        """Remove the object that was written, if any."""
        if self._name:
            self._hand(self._name, None)

    def _hand(self, name: str, shared: Shared | None) -> None:
        with self._lock:
            self._name, self._next = name, (name, shared)
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name="adaptive_spec fleet state", daemon=True
                )
                thread.start()  # which an interpreter that ends refuses
                self._thread = thread
            self._lock.notify()

    def outcome(self) -> tuple[bool, Exception | None]:
        """Return whether anything was written since the last call, and what has failed."""
        with self._lock:
            written, error = self._written, self._error
            self._written, self._error = False, None
            if time.monotonic() - self._busy_since > _STUCK_SECONDS:
                self._busy_since = math.inf
                error = TimeoutError(f"no answer for {_STUCK_SECONDS:.0f} s")
            return written, error

    def close(self, seconds: float) -> None:
        """Write what waits, if the store answers in time."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        store: ObjectStore | None = None
        while True:
            with self._lock:
                while self._next is None and not self._closed:
                    self._lock.wait()
                if self._next is None:
                    return
                (name, shared), self._next = self._next, None
                self._busy_since = time.monotonic()
            error: Exception | None = None
            try:
                store = store or open_store(self._url)
                if shared is None:
                    store.remove(name)
                else:
                    content = msgspec.json.encode(shared)
                    if len(content) > LARGEST_BYTES:
                        raise ValueError(f"more than {LARGEST_BYTES} bytes")
                    store.write(name, content)
            except Exception as raised:
                error = raised
            with self._lock:
                self._busy_since = math.inf
                self._written, self._error = error is None, error
