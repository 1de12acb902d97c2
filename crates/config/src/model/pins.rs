//! What becomes of definitions that nobody has approved.

use super::life::FOLDER;
use crate::option::kind::{Choice, Maybe, OrOff};
use crate::option::options;

options! {
    /// What becomes of definitions of tools, prompts and templates that are not as `fanlight pin` has approved them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PinOptions: "pins", "in `pins`";
    options {
        /// `warn` says which definitions of pinned servers have changed or are new; `hold` also keeps them from clients until they
        /// are approved.
        /// Null or `off` for neither.
        "mode" => mode: Option<PinMode> = None, OrOff(MODE), example "warn";
        /// The file that `fanlight pin` writes, relative to the folder of this file. A change takes effect at once. Default:
        /// `fanlight.lock.json` in that folder.
        "file" => file: Option<String> = None, Maybe(FOLDER), example "fanlight.lock.json";
    }
    fields {
        /// The file with its path.
        path: String = String::new();
        /// The text of the file; `None` if there is none.
        text: Option<String> = None;
    }
}

/// What becomes of definitions that nobody has approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinMode {
    /// They are told of.
    Warn,
    /// They are kept from clients.
    Hold,
}

const MODE: Choice<PinMode> = Choice(&[("warn", PinMode::Warn), ("hold", PinMode::Hold)]);

impl Default for PinOptions {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}
