//! Text that is never shown.

use std::fmt;
use std::hash::{Hash, Hasher};

use zeroize::Zeroizing;

/// Text that is never shown: `Debug` and `Display` print `***`. It is overwritten when it is
/// dropped.
#[derive(Clone)]
pub struct Secret {
    text: Zeroizing<String>,
    /// The configuration's text for it, such as `Bearer ${TOKEN}`; `None` if the configuration has
    /// the secret itself.
    reference: Option<Zeroizing<String>>,
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Secret {}

impl Hash for Secret {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expose().hash(state);
    }
}

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: Zeroizing::new(text.into()),
            reference: None,
        }
    }

    /// Hides the value of a reference to variables.
    pub fn referred_to(reference: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            reference: Some(Zeroizing::new(reference.into())),
            ..Self::new(text)
        }
    }

    /// Whether the configuration has the same text for both, although a reference may mean another
    /// value now.
    pub fn is_written_as(&self, other: &Self) -> bool {
        match (&self.reference, &other.reference) {
            (Some(reference), Some(other)) => reference == other,
            (None, None) => self == other,
            _ => false,
        }
    }

    /// The configuration's text for it, which must be hidden as well, since it may be the secret
    /// itself.
    pub fn as_written(&self) -> &str {
        self.reference.as_ref().unwrap_or(&self.text)
    }

    /// The text, for its one use.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
