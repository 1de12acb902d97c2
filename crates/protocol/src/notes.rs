//! What has been found by looking through a response that is given many times, kept with it so that nobody has to look
//! again.
//!
//! Must not know: who looks, or what they do with it.

use std::sync::OnceLock;

use crate::message::Response;

/// Shared by all copies of a response for as long as they say the same.
#[derive(Debug, Default)]
pub struct Notes {
    /// Set once those who count by the names in a list have read them.
    pub names_read: OnceLock<()>,
    /// The list of tools without those that clients which mirror parameters must not be offered; `None` within if all
    /// may be offered.
    pub mirrorable: OnceLock<Option<Response>>,
}
