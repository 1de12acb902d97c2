//! The options of the audit log.

use std::time::Duration;

use super::auth::values::TEXT;
use super::life::FOLDER;
use crate::option::{Each, Flag, Maybe, OrOff, choice, options, size, time};

const MIB: usize = 1 << 20;
const DAY: Duration = Duration::from_secs(86_400);

options! {
    /// The audit log: who called what, in files that reveal changes.
    pub struct AuditOptions: "audit", "in `audit`";
    options {
        /// The file, relative to the folder of this file. Earlier files, the checkpoints and their
        /// key are beside it. Default: `audit/audit.jsonl` in `stateDir`, or in the user's state
        /// folder.
        "file" => file: Option<String> = None, Maybe(FOLDER), example "# /var/log/fanlight/audit.jsonl";
        /// Whether lines and checkpoints also go to the collector of `telemetry`, as log records.
        "otlp" => otlp: bool = false, Flag;
        /// Whether a request runs only after its line is on the disk. If the line cannot be
        /// written, the request does not run.
        "required" => required: bool = false, Flag;
        /// How arguments of calls are recorded: not at all, as the SHA-256 digest of their text, or
        /// as text with secrets masked.
        "arguments" => arguments: ArgumentsChoice = ArgumentsChoice::None, ARGUMENTS;
        /// Further members of arguments to mask, besides those with secret names or schemas: a path
        /// such as `customer.email`, or a name at any place.
        "redact" => redact: Vec<String> = Vec::new(), Each(TEXT), example "[customer.email, iban]";
        /// The time for which files are kept. Null or `off` disables the audit log.
        "keepFor" => keep_for: Option<Duration> = Some(DAY.saturating_mul(7)), OrOff(time(DAY, DAY.saturating_mul(3660)));
        /// The largest total size of all files; beyond it the oldest one is removed.
        "size" => size: usize = 64 * MIB, size(MIB, 1 << 40);
    }
}

choice! {
    /// The recorded form of calls' arguments.
    ArgumentsChoice, ARGUMENTS {
        /// No arguments.
        None = "none",
        /// The digest.
        Digest = "digest",
        /// The text.
        Full = "full",
    }
}
