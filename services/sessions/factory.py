"""Makes the sessions of one Router."""

from prove_core.types import Mode, Role
from services.channel.client import ChannelPool
from services.metrics.healing import HealingMetrics
from services.sessions.degrade import Fallback, Outlook
from services.sessions.healing import Healing
from services.sessions.replica_session import Lessor, ReplicaSession


class SessionFactory:
    """Makes a Router's sessions: they share its connections and what `healing` says."""

    def __init__(self, healing: Healing, metrics: HealingMetrics) -> None:
        self._channels = ChannelPool(healing.silence_limit_s)
        self._healing = healing
        self.metrics = metrics
        outlook = Outlook(metrics.missing)
        self.fallback = None if healing.degrade == "fail" else Fallback(Mode(healing.degrade), outlook)

    def make(self, session: str, role: Role, lessor: Lessor) -> ReplicaSession:
        """A session that is not open yet."""
        healing = self._healing
        return ReplicaSession(
            session,
            lessor,
            self._channels,
            patience_s=healing.verifier_deadline_s if role is Role.VERIFIER else healing.patience_s,
            recovered=lambda loss, seconds: self.metrics.recovered(role, loss, seconds),
        )
