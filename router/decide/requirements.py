"""What a sensitivity class demands of the place that its requests go to."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from router.types.target import Target


class Requirements(BaseModel):
    """Every given demand must hold. Regions are the policy's own words (a target's `region`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    local_only: bool = False
    regions: tuple[str, ...] = ()
    jurisdictions_not: tuple[str, ...] = ()
    thinking_cap: Annotated[int, Field(ge=0)] | None = Field(None, description="Thinking tokens of each request.")

    def refusal(self, target: Target) -> str:
        """Why `target` does not meet these demands, in one sentence; empty when it does."""
        if target.local:
            return ""
        if self.local_only:
            return "only local targets may see this class"
        if self.regions and target.region not in self.regions:
            return f"its region {target.region or 'is not stated and'} is not one of {', '.join(self.regions)}"
        if self.jurisdictions_not and target.provider.jurisdiction in ("", *self.jurisdictions_not):
            return f"its jurisdiction {target.provider.jurisdiction or 'is not stated and'} may be excluded"
        return ""
