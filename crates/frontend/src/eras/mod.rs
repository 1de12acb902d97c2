//! The dialects of clients: how to read and check requests, and the required members of answers.
//! The rows of [`Revision`] have the differences between revisions of a dialect.

use fanlight_protocol::Revision;

pub(crate) mod description;
pub(crate) mod fault;
pub(crate) mod legacy;
pub(crate) mod modern;
pub(crate) mod notifications;
pub(crate) mod params;
pub(crate) mod render;

/// The revision called `name`, if it is served.
pub(crate) fn revision(name: &str) -> Option<Revision> {
    #[cfg(test)]
    if name == tests::RULES.name {
        return Some(tests::REVISION);
    }
    Revision::from_name(name)
}

#[cfg(test)]
mod tests;
