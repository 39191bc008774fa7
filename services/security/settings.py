"""Where API keys come from. The keys themselves never stand in the configuration, which is shown and logged."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from prove_core.config import Frozen


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())  # a Router's working directory is another one


class SecuritySettings(Frozen):
    """API keys: both sources add up; without any the API is open to whoever reaches it."""

    api_keys_file: Annotated[str, Field(min_length=1), AfterValidator(_absolute)] | None = Field(
        default=None, description="File with a key a line, on each Router's node; read again on change."
    )
    api_keys_env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="Name of the environment variable that holds keys, separated by commas.",
    )

    @property
    def guarded(self) -> bool:
        """Whether the API asks for a key."""
        return self.api_keys_file is not None or self.api_keys_env is not None
