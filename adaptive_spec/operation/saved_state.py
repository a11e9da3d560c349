"""Saved state: a policy's learned state, kept from one run of a server to the next.

A file name consists of the policy's name, a digest of the server and a digest of the policy's
configuration: model, drafter, hardware, versions, Kmax and ladder as reported by the adapter; the
policy's options and the content of the cost profile. A server with any difference finds no file,
starts from the prior and never overwrites another server's state. Files are JSON; each policy
validates its own part on load. Of one server, the `MOST_FILES` newest files are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import check_plain, decode_json, read_small_file
from adaptive_spec.config import Config
from adaptive_spec.operation.output_file import Retry, remove_temporaries, replace_file
from adaptive_spec.operation.status import Counters
from adaptive_spec.policy import POLICY_ERRORS, Policy

MOST_FILES = 16
"""Most state files of one server (one per value of `options`)."""

_SAVE_SECONDS = 10.0
_IDLE_SECONDS = 1.0
LARGEST_BYTES = 4 << 20
"""Bytes of a state."""
_DIGEST_LETTERS = 12
_NAME_CHARACTERS = 64
PROFILE = "profile"
"""Name of the cost profile's digest in an identity."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a state file.

    Attributes:
        schema: version of this format.
        identity: model, drafter, hardware and so on that the state belongs to.
        policy, options: policy that learned the state.
        state: result of `Policy.state`.
    """

    schema: int
    identity: dict[str, str]
    policy: str
    options: dict[str, Any]
    state: dict[str, Any]


class Profiles:
    """Digests of cost profiles as first read.

    A profile that is measured anew under the same name changes the next server's identity, not this
    server's, which has not read the new profile.
    """

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def of(self, config: Config) -> str:
        """Return the digest of the configured profile; empty without one."""
        name = str(config.options.get("profile") or config.profile or "")
        if name and name not in self._digests:
            self._digests[name] = _digest(read_small_file(name))
        return self._digests.get(name, "")


class SavedState:
    """Store of a policy's state in a directory.

    No method raises: a server can run without saved state. What fails is tried again.

    Args:
        directory: folder, created if missing; None: no state is saved.
        identity: names and values that the state belongs to.
        retry: attempts to save.
        logger: logger of the engine.
    """

    def __init__(
        self,
        directory: Path | None,
        identity: Mapping[str, str],
        retry: Retry,
        logger: logging.Logger,
    ) -> None:
        self._directory = directory
        self._retry = retry
        self._identity = dict(sorted(identity.items()))
        self._server = _digest(msgspec.json.encode(self._identity))
        self._log = logger
        self._saved_at = math.nan
        self._taken_up: Path | None = None
        self._profiles = Profiles()

    @classmethod
    def from_config(
        cls,
        config: Config,
        identity: Mapping[str, str] | None,
        counters: Counters,
        logger: logging.Logger,
    ) -> SavedState:
        """Build from the configuration; without an identity nothing is saved, with a warning."""
        name = config.state_directory
        if name and identity is None:
            logger.warning("adaptive_spec: `state_directory` is not used with this engine")
        directory = Path(name) if name and identity is not None else None
        retry = Retry(f"saved state {name!r}", counters.output_failed, logger)
        return cls(directory, identity or {}, retry, logger)

    def _path(self, directory: Path, config: Config) -> Path:
        """Return the state file of this configuration's policy."""
        digest = _digest(msgspec.json.encode(self._owner(config), order="sorted"))
        policy = re.sub(r"[^\w.-]", "_", config.policy.rpartition(":")[2])[:_NAME_CHARACTERS]
        return directory / f"{policy}-{self._server}-{digest}.json"

    def take_up(self, policy: Policy, config: Config) -> bool:
        """Load the saved state into a new policy; return whether a matching file was used."""
        self._taken_up = None
        if self._directory is None:
            return False
        path = self._directory
        try:
            path = self._path(self._directory, config)
            remove_temporaries(path)
            content = read_small_file(path, LARGEST_BYTES)
        except FileNotFoundError:
            return False
        except Exception as error:
            self._log.warning("adaptive_spec: saved state is not read: %s: %s", path, error)
            return False
        try:
            saved = decode_json(content, Saved)
            if saved.schema != 1 or self._owner(config) != (
                saved.identity,
                saved.policy,
                saved.options,
            ):
                raise ValueError("the state belongs to another server")
            policy.restore(saved.state)
        except POLICY_ERRORS as error:
            # Keep the file for inspection; the next save reuses its name.
            self._log.warning(
                "adaptive_spec: saved state %s is not used, learning starts anew: %s", path, error
            )
            self._set_aside(path)
            return False
        self._taken_up = path
        self._log.info("adaptive_spec: policy %s resumes from %s", config.policy, path)
        return True

    def refresh(self, now: float, policy: Policy, config: Config, *, idle: bool = False) -> None:
        """Save if the last save is old enough; while the engine is idle, a second is."""
        if math.isnan(self._saved_at):
            self._saved_at = now
        if 0 <= now - self._saved_at <= (_IDLE_SECONDS if idle else _SAVE_SECONDS):
            return
        self.save(now, policy, config)

    def save(self, now: float, policy: Policy, config: Config) -> None:
        """Save now, unless saving has just failed."""
        if self._directory is not None and self._retry.due(now):
            self._saved_at = now
            directory = self._directory
            self._retry.attempt(now, lambda: self._write(directory, policy, config))

    def _write(self, directory: Path, policy: Policy, config: Config) -> None:
        try:
            state = policy.state()
            check_plain(state)
        except POLICY_ERRORS as error:
            raise ValueError(f"state of policy {config.policy}: {error}") from error
        if not state:
            return
        identity, name, options = self._owner(config)
        content = msgspec.json.encode(
            Saved(schema=1, identity=identity, policy=name, options=options, state=dict(state))
        )
        if len(content) > LARGEST_BYTES:
            raise ValueError(f"state of policy {name}: more than {LARGEST_BYTES} bytes")
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(directory, config), content)
        self._prune(directory)

    def _prune(self, directory: Path) -> None:
        """Delete the oldest files of this server beyond the limit."""
        found = [(_age(path), path) for path in directory.glob(f"*-{self._server}-*.json*")]
        for _, path in sorted(found)[: max(len(found) - MOST_FILES, 0)]:
            with contextlib.suppress(OSError):
                path.unlink()

    def distrust(self) -> None:
        """Set aside the file that the policy started from, as the policy has failed repeatedly."""
        path, self._taken_up = self._taken_up, None
        if path is not None:
            self._log.warning("adaptive_spec: saved state %s is not used again", path)
            self._set_aside(path)

    def drop(self) -> None:
        """Set aside all saved states of this server, of any policy."""
        if self._directory is None:
            return
        for path in self._directory.glob(f"*-{self._server}-*.json"):
            self._set_aside(path)

    def _owner(self, config: Config) -> tuple[dict[str, str], str, dict[str, Any]]:
        identity = {**self._identity, PROFILE: self._profiles.of(config)}
        return identity, config.policy, config.options

    def _set_aside(self, path: Path) -> None:
        try:
            path.replace(path.with_name(path.name + ".unused"))
        except OSError as error:
            self._log.warning("adaptive_spec: outdated state remains: %s: %s", path, error)


def _age(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LETTERS]
