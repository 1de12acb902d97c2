//! Scopes, as requested or granted.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A set of scopes, ordered by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scopes(BTreeSet<String>);

impl Scopes {
    /// The scopes in a text, separated by spaces (RFC 6749, 3.3).
    pub fn read(text: &str) -> Self {
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// The union of both sets. Granted scopes are not given up for newly required ones (2026-07-28
    /// basic/authorization, Step-Up Authorization Flow).
    pub fn union(&self, others: &Self) -> Self {
        self.0.union(&others.0).cloned().collect()
    }

    /// Whether all of the other scopes are in this set.
    #[must_use]
    pub fn include(&self, others: &Self) -> bool {
        others.0.is_subset(&self.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of scopes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the scopes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromIterator<String> for Scopes {
    fn from_iter<I: IntoIterator<Item = String>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, scope) in self.0.iter().enumerate() {
            write!(f, "{}{scope}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_a_set() {
        let held = Scopes::read("b  a b");
        assert_eq!(held.to_string(), "a b");
        assert_eq!(held.union(&Scopes::read("c a")).to_string(), "a b c");
        assert!(held.include(&Scopes::read("a")) && held.include(&Scopes::default()));
        assert!(!held.include(&Scopes::read("c")));
    }
}
