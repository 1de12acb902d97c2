//! The treatment of definitions that nobody has approved.

use super::life::FOLDER;
use crate::option::{Maybe, OrOff, choice, options};

options! {
    /// The treatment of definitions of tools, prompts and templates that differ from those approved
    /// by `fanlight pin`.
    pub struct PinOptions: "pins", "in `pins`";
    options {
        /// `warn` reports changed and new definitions of pinned servers; `hold` also hides them
        /// from clients until they are approved. Null or `off` does neither.
        "mode" => mode: Option<PinMode> = None, OrOff(MODE), example "warn";
        /// The file that `fanlight pin` writes, relative to the folder of this file. A change takes
        /// effect at once. Default: `fanlight.lock.json` in that folder.
        "file" => file: Option<String> = None, Maybe(FOLDER), example "fanlight.lock.json";
    }
    fields {
        /// The path of the file.
        path: String = String::new();
        /// The text of the file; `None` if there is none.
        text: Option<String> = None;
    }
}

choice! {
    /// The treatment of definitions that nobody has approved.
    PinMode, MODE {
        /// Unapproved definitions are reported.
        Warn = "warn",
        /// Unapproved definitions are hidden from clients.
        Hold = "hold",
    }
}
