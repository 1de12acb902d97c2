//! Limits the signals of a server in a sandbox, and its connections to abstract Unix sockets, to its
//! own processes. Otherwise it could end its guard, and survive Fanlight's end.

use landlock::{
    CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetError, RulesetStatus, Scope,
};

/// Confines signals and abstract sockets of this process and its descendants to themselves. Returns
/// whether the system supports that (Linux 6.12).
pub(super) fn confine() -> bool {
    let confined = || -> Result<RulesetStatus, RulesetError> {
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?;
        Ok(ruleset.create()?.restrict_self()?.ruleset)
    };
    matches!(confined(), Ok(RulesetStatus::FullyEnforced))
}
