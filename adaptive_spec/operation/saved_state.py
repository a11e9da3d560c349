"""What a policy has learned, kept from one run of a server to the next.

A file is named by the policy and by a digest of everything that what was learned belongs to: model,
drafter, hardware, versions, Kmax and ladder, as the adapter tells, the policy's options, and the
content of the cost profile it started from. So a server that differs in any of it finds no file and
starts from the prior, and none overwrites what another has learned. The file is JSON; the policy
checks its own part when it takes it up.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import read_small_file
from adaptive_spec.config import Config
from adaptive_spec.policy import Policy

_SAVE_SECONDS = 60.0
_LARGEST_BYTES = 4 << 20
_DIGEST_LETTERS = 12
_PROFILE = "profile"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a file.

    Attributes:
        schema: version of this format.
        identity: what the state belongs to.
        policy, options: whose it is.
        state: of `Policy.state`.
    """

    schema: int
    identity: dict[str, str]
    policy: str
    options: dict[str, Any]
    state: dict[str, Any]


class SavedState:
    """Keeps the state of a controller's policy in a directory.

    No method raises: a server runs without what was learned before. A disk that fails ends the
    saving, said once.

    Args:
        directory: made if missing; None: nothing is kept.
        identity: names and values of what the state belongs to.
        logger: of the engine.
    """

    def __init__(
        self, directory: Path | None, identity: Mapping[str, str], logger: logging.Logger
    ) -> None:
        self._directory = directory
        self._identity = dict(sorted(identity.items()))
        self._log = logger
        self._next = math.nan
        self._profiles: dict[str, str] = {}

    @classmethod
    def from_config(
        cls, config: Config, identity: Mapping[str, str] | None, logger: logging.Logger
    ) -> SavedState:
        """As configured; an adapter that tells no identity keeps nothing, and that is said."""
        name = config.state_directory
        if name and identity is None:
            logger.warning("adaptive_spec: `state_directory` is not used with this engine")
        return cls(Path(name) if name and identity is not None else None, identity or {}, logger)

    def _path(self, directory: Path, config: Config) -> Path:
        """Where the state of this configuration's policy is kept."""
        digest = _digest(msgspec.json.encode(self._owner(config), order="sorted"))
        policy = config.policy.rpartition(":")[2]
        return directory / f"{policy}-{digest}.json"

    def take_up(self, policy: Policy, config: Config) -> bool:
        """Let a new policy go on from what was learned, if there is a file that fits."""
        if self._directory is None:
            return False
        path = self._directory
        try:
            path = self._path(self._directory, config)
            content = read_small_file(path, _LARGEST_BYTES)
        except FileNotFoundError:
            return False
        except Exception as error:
            self._log.warning("adaptive_spec: nothing learned is kept: %s: %s", path, error)
            self._directory = None
            return False
        try:
            saved = msgspec.json.decode(content, type=Saved)
            if saved.schema != 1 or self._owner(config) != (
                saved.identity,
                saved.policy,
                saved.options,
            ):
                raise ValueError("it belongs to another server")
            policy.restore(saved.state)
        except Exception as error:
            # Kept for whoever wants to know; the next save takes its name.
            self._log.warning(
                "adaptive_spec: %s is not used, learning starts anew: %s", path, error
            )
            self._set_aside(path)
            return False
        self._log.info("adaptive_spec: policy %s goes on from %s", config.policy, path)
        return True

    def refresh(self, now: float, policy: Policy, config: Config) -> None:
        """Save, if the last time is long enough ago."""
        if self._directory is None:
            return
        if math.isnan(self._next):
            self._next = now + _SAVE_SECONDS
        if 0 <= self._next - now <= _SAVE_SECONDS:
            return
        self._next = now + _SAVE_SECONDS
        self.save(policy, config)

    def save(self, policy: Policy, config: Config) -> None:
        """Save now, whole or not at all."""
        if self._directory is None:
            return
        try:
            state = policy.state()
            if not state:
                return
            identity, name, options = self._owner(config)
            content = msgspec.json.encode(
                Saved(schema=1, identity=identity, policy=name, options=options, state=dict(state))
            )
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._path(self._directory, config)
            # Several engines may save at the same time, on several machines.
            temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
            try:
                temporary.write_bytes(content)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except Exception as error:
            self._log.warning(
                "adaptive_spec: what is learned is not saved any more: %s: %s",
                type(error).__name__,
                error,
            )
            self._directory = None

    def drop(self) -> None:
        """What is saved of this server, of any policy, holds no longer."""
        if self._directory is None:
            return
        try:
            for path in self._directory.glob("*.json"):
                saved = msgspec.json.decode(read_small_file(path, _LARGEST_BYTES), type=Saved)
                if saved.identity == {**self._identity, _PROFILE: saved.identity.get(_PROFILE)}:
                    self._set_aside(path)
        except Exception as error:
            self._log.warning(
                "adaptive_spec: what was learned before is left in %s: %s", self._directory, error
            )

    def _owner(self, config: Config) -> tuple[dict[str, str], str, dict[str, Any]]:
        identity = {**self._identity, _PROFILE: self._profile(config)}
        return identity, config.policy, config.options

    def _profile(self, config: Config) -> str:
        """Tells contents of cost profiles apart; as the file was when it was first asked about.

        A profile that is measured anew under the same name is another one to the next server, not
        to this one, which has not read it.
        """
        name = str(config.options.get("profile") or config.profile or "")
        if name and name not in self._profiles:
            self._profiles[name] = _digest(Path(name).read_bytes())
        return self._profiles.get(name, "")

    def _set_aside(self, path: Path) -> None:
        try:
            path.replace(path.with_name(path.name + ".unused"))
        except OSError:
            return


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LETTERS]
