//! The record of who called what.

use std::time::Duration;

use super::auth::values::TEXT;
use super::life::FOLDER;
use crate::option::kind::{Choice, Each, Flag, Maybe, OrOff, size, time};
use crate::option::options;

const MIB: usize = 1 << 20;
const DAY: Duration = Duration::from_secs(86_400);

options! {
    /// The record of who called what, in files that show whether they were changed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AuditOptions: "audit", "in `audit`";
    options {
        /// The file, relative to the folder of this file. Earlier files, the checkpoints and their key are beside it. Default:
        /// `audit/audit.jsonl` in `stateDir`, or in the state folder of the user.
        "file" => file: Option<String> = None, Maybe(FOLDER), example "# /var/log/fanlight/audit.jsonl";
        /// Whether lines and checkpoints also go to the collector of `telemetry`, as log records.
        "otlp" => otlp: bool = false, Flag;
        /// Whether a request runs only once it is on the disk that it is going to. If it cannot be written, it does not run.
        "required" => required: bool = false, Flag;
        /// What is kept of the arguments of calls: nothing, the SHA-256 digest of their text, or the text with secrets masked.
        "arguments" => arguments: ArgumentsChoice = ArgumentsChoice::None, ARGUMENTS;
        /// Members of arguments that are masked besides those whose names or schemas say that they are secret: a path such as
        /// `customer.email`, or a name alone, wherever it is.
        "redact" => redact: Vec<String> = Vec::new(), Each(TEXT), example "[customer.email, iban]";
        /// How long files are kept. Null or `off` keeps no record.
        "keepFor" => keep_for: Option<Duration> = Some(DAY.saturating_mul(7)), OrOff(time(DAY, DAY.saturating_mul(3660)));
        /// How large all files together may become; then the oldest is removed.
        "size" => size: usize = 64 * MIB, size(MIB, 1 << 40);
    }
}

/// What is kept of the arguments of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentsChoice {
    /// Nothing.
    None,
    /// The digest.
    Digest,
    /// The text.
    Full,
}

const ARGUMENTS: Choice<ArgumentsChoice> = Choice(&[
    ("none", ArgumentsChoice::None),
    ("digest", ArgumentsChoice::Digest),
    ("full", ArgumentsChoice::Full),
]);

impl Default for AuditOptions {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}
