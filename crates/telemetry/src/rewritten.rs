//! The parts of a message that the configuration changed: the value of the attribute
//! `fanlight.rewritten`.

use bitflags::bitflags;

bitflags! {
    /// A set of parts of a message that a configuration can change, in the order in which they are
    /// shown.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Rewritten: u8 {
        /// The name of a tool or prompt.
        const NAME = 1;
        /// The title of a tool.
        const TITLE = 1 << 1;
        /// The description of a tool.
        const DESCRIPTION = 1 << 2;
        /// The annotations of a tool.
        const ANNOTATIONS = 1 << 3;
        /// The arguments of a tool call, or the arguments in a tool's input schema.
        const ARGUMENTS = 1 << 4;
        /// The result of a tool call, which a guardrail has replaced.
        const RESULT = 1 << 5;
    }
}

impl Rewritten {
    /// `self` if `applies`, or else the empty set.
    #[must_use]
    pub fn when(self, applies: bool) -> Self {
        if applies { self } else { Self::empty() }
    }
}

impl std::fmt::Display for Rewritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.iter_names().map(|(name, _)| name.to_ascii_lowercase());
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_in_order() {
        assert_eq!(
            (Rewritten::ARGUMENTS | Rewritten::NAME).to_string(),
            "name, arguments"
        );
        assert_eq!(
            Rewritten::TITLE.when(false) | Rewritten::empty(),
            Rewritten::default()
        );
        assert!(Rewritten::default().is_empty() && Rewritten::default().to_string().is_empty());
    }
}
