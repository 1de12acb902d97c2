//! Signals of a server in a sandbox, which reach its own processes only: it could end its guard and stay when Fanlight
//! ends.

use landlock::{
    CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetError, RulesetStatus, Scope,
};

/// Keeps signals of this process and its descendants among them. Returns whether the system can (Linux 6.12).
pub(super) fn confine() -> bool {
    let confined = || -> Result<RulesetStatus, RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal)?;
        Ok(ruleset.create()?.restrict_self()?.ruleset)
    };
    matches!(confined(), Ok(RulesetStatus::FullyEnforced))
}
