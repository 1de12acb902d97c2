//! The parts of a message that the configuration changed: the value of the attribute
//! `fanlight.rewritten`.

/// A set of parts of a message that a configuration can change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten(u8);

/// Each part and its name, in the order in which they are shown.
const NAMES: [(Rewritten, &str); 6] = [
    (Rewritten::NAME, "name"),
    (Rewritten::TITLE, "title"),
    (Rewritten::DESCRIPTION, "description"),
    (Rewritten::ANNOTATIONS, "annotations"),
    (Rewritten::ARGUMENTS, "arguments"),
    (Rewritten::RESULT, "result"),
];

impl Rewritten {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The name of a tool or prompt.
    pub const NAME: Self = Self(1);
    /// The title of a tool.
    pub const TITLE: Self = Self(1 << 1);
    /// The description of a tool.
    pub const DESCRIPTION: Self = Self(1 << 2);
    /// The annotations of a tool.
    pub const ANNOTATIONS: Self = Self(1 << 3);
    /// The arguments of a tool call, or the arguments in a tool's input schema.
    pub const ARGUMENTS: Self = Self(1 << 4);
    /// The result of a tool call, which a guardrail has replaced.
    pub const RESULT: Self = Self(1 << 5);

    /// The parts that are in either set.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self` if `applies`, or else the empty set.
    #[must_use]
    pub const fn when(self, applies: bool) -> Self {
        if applies { self } else { Self::NONE }
    }

    /// The parts that are in both sets.
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains all of `other`.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::fmt::Display for Rewritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = NAMES
            .iter()
            .filter(|(one, _)| self.includes(*one))
            .map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_in_order() {
        assert_eq!(
            Rewritten::ARGUMENTS.and(Rewritten::NAME).to_string(),
            "name, arguments"
        );
        assert_eq!(
            Rewritten::TITLE.when(false).and(Rewritten::NONE),
            Rewritten::default()
        );
        assert!(Rewritten::default().is_empty() && Rewritten::default().to_string().is_empty());
    }
}
